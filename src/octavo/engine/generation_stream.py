"""GenerationStream: what a submitter holds while its requests run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from octavo.core.messages import EngineRequest
from octavo.engine.outputs import GenerationOutput


class GenerationStream:
    """The outputs of one or more requests, as they come; iterate over it once, and close it in any case.

    Ends when every request has ended. Raises what ended them otherwise: RequestRejected or EngineUnavailableError.
    """

    def __init__(self, requests: Sequence[EngineRequest], abort: Callable[[str], None]) -> None:
        self.prompt_token_ids = [list(request.prompt_token_ids) for request in requests]
        self.num_prompt_tokens = sum(map(len, self.prompt_token_ids))
        self._prompt_index_by_id = {request.request_id: i for i, request in enumerate(requests)}
        self._unfinished_ids = dict.fromkeys(self._prompt_index_by_id)
        self._queue: asyncio.Queue[GenerationOutput | Exception] = asyncio.Queue()
        self._first: GenerationOutput | None = None  # taken from the queue already
        self._abort = abort

    def prompt_index(self, output: GenerationOutput) -> int:
        """Which of the prompts submitted together the output belongs to."""
        return self._prompt_index_by_id[output.request_id]

    def put(self, item: GenerationOutput | Exception) -> None:
        """Hand the next output, or the error that ends the stream, to whoever iterates."""
        self._queue.put_nowait(item)

    async def wait_until_begun(self) -> None:
        """Wait for the first output, which stays to be iterated over. Raises what ended the stream before it."""
        self._first = await self._take()

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
        item, self._first = self._first or await self._take(), None
        if item.finished:
            del self._unfinished_ids[item.request_id]
        return item

    async def _take(self) -> GenerationOutput:
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item
