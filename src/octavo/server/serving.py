"""Serving: what the handlers share: the engine, and the names its model goes by."""

from __future__ import annotations

import time
from functools import cached_property

from starlette.requests import Request

from octavo.engine.async_engine import AsyncEngine
from octavo.server.errors import ApiError
from octavo.server.server_config import ServerConfig
from octavo.server.turns.style import TurnStyle


class Serving:
    """An engine under one or more model names; the first is the one that answers carry by default."""

    def __init__(self, engine: AsyncEngine, config: ServerConfig) -> None:
        self.engine = engine
        self.config = config
        self.created = int(time.time())  # when the server began, in seconds since the epoch

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every name. Unless told otherwise, the one that the engine found; so it must be ready."""
        if self.config.model_names:
            return self.config.model_names
        config = self.engine.ready.config
        return (config.served_model_name or config.model,)

    @cached_property
    def turn_style(self) -> TurnStyle:
        """How the model writes its turns; so it must be ready."""
        return TurnStyle(self.engine.tokenizer, self.config.tool_call_parser, self.config.reasoning_parser)

    def model_name(self, requested: str | None) -> str:
        """The name to answer under. Raises the error for a model that is not served."""
        if not requested:
            return self.model_names[0]
        if requested not in self.model_names:
            message = f"the model {requested!r} does not exist; served here: {', '.join(self.model_names)}"
            raise ApiError(404, "model_not_found", message, "model")
        return requested


def serving_of(request: Request) -> Serving:
    """The Serving of the app that the request came to."""
    serving: Serving = request.app.state.serving
    return serving
