"""GenerationStream: what a submitter holds while its requests run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import RequestOutputKind
from octavo.engine.outputs import GenerationOutput, merge_deltas


class GenerationStream:
    """The outputs of one or more requests, as they come; iterate over it once, and close it in any case.

    Ends when every request has ended. Raises what ended them otherwise: RequestRejected or EngineUnavailableError.
    """

    def __init__(self, requests: Sequence[EngineRequest], abort: Callable[[str], None]) -> None:
        self.prompt_token_ids = [list(request.prompt_token_ids) for request in requests]
        self.num_prompt_tokens = sum(map(len, self.prompt_token_ids))
        self._prompt_index_by_id = {request.request_id: i for i, request in enumerate(requests)}
        self._unfinished_ids = dict.fromkeys(self._prompt_index_by_id)
        self._is_delta = any(r.sampling_params.output_kind is RequestOutputKind.DELTA for r in requests)
        self._pending_by_id: dict[str, GenerationOutput] = {}  # what whoever iterates has not taken yet
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()  # something is pending, or has failed
        self._abort = abort

    def prompt_index(self, output: GenerationOutput) -> int:
        """Which of the prompts submitted together the output belongs to."""
        return self._prompt_index_by_id[output.request_id]

    def put(self, output: GenerationOutput) -> None:
        """Hand the next output to whoever iterates. Whoever is slow gets several of a request as one."""
        before = self._pending_by_id.get(output.request_id)
        self._pending_by_id[output.request_id] = merge_deltas(before, output) if before and self._is_delta else output
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error, after what is pending."""
        self._failure = error
        self._arrived.set()

    async def wait_until_begun(self) -> None:
        """Wait for the first output, which stays to be iterated over. Raises what ended the stream before it."""
        await self._arrived.wait()
        if self._failure is not None and not self._pending_by_id:
            raise self._failure

    def close(self) -> None:
        """Abort whatever has not ended. Never waits, so that it works while a task is being cancelled."""
        for request_id in self._unfinished_ids:
            self._abort(request_id)
        self._unfinished_ids.clear()

    def __aiter__(self) -> GenerationStream:
        return self

    async def __anext__(self) -> GenerationOutput:
        if not self._unfinished_ids:
            raise StopAsyncIteration
        await self.wait_until_begun()
        request_id = next(iter(self._pending_by_id))
        output = self._pending_by_id.pop(request_id)
        if not self._pending_by_id and self._failure is None:
            self._arrived.clear()
        if output.finished:
            del self._unfinished_ids[request_id]
        return output
