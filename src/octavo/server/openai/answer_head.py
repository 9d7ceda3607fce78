"""AnswerHead: what the answers of chat and completions have in common, and when their chunks say what was used."""

from __future__ import annotations

import time
from uuid import uuid4

from msgspec import UNSET, UnsetType

from octavo.server.errors import invalid
from octavo.server.generation_fields import GenerationFields, StreamOptions
from octavo.server.usage import Usage


class AnswerHead:
    """What every chunk of an answer repeats."""

    def __init__(self, id_prefix: str, model: str, body: GenerationFields) -> None:
        options = body.stream_options or StreamOptions()
        self.id = f"{id_prefix}-{uuid4().hex}"
        self.created = int(time.time())
        self.model = model
        self.has_usage_chunk = bool(options.include_usage)
        self._has_running_usage = bool(options.continuous_usage_stats)

    def chunk_usage(self, usage: Usage) -> Usage | UnsetType | None:
        """The `usage` of a chunk with choices: null says that it will come, absence that nobody asked for it."""
        if self._has_running_usage:
            return usage
        return None if self.has_usage_chunk else UNSET


def check_stream_options(body: GenerationFields) -> None:
    """Raise the error for options of a stream where none is asked for."""
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "stream_options needs stream: true")
