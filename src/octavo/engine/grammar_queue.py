"""GrammarQueue: requests wait here for their grammars, which a thread compiles one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from octavo.core.admission import RequestRejected
from octavo.core.messages import EngineRequest
from octavo.structured.compiler import GrammarCompiler
from octavo.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from octavo.structured.grammar import Grammar

logger = logging.getLogger("octavo.engine")


class GrammarQueue:
    """The loop adds and takes, and waits for nothing. A grammar is held until every choice that uses it has ended."""

    def __init__(self, grammars: GrammarCompiler, wake: Callable[[], None]) -> None:
        """`wake` is called, from the thread, when there may be something to `take`."""
        self._grammars = grammars
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, "octavo-grammar")
        self._waiting: dict[str, tuple[EngineRequest, Future[Grammar]]] = {}
        self._held: dict[tuple[str, int], Grammar] = {}  # by request_id and index of the choice

    def learn(self, vocabulary: Vocabulary) -> None:
        """Take the model's tokens, before the first request."""
        self._grammars.learn(vocabulary)

    def add(self, request: EngineRequest) -> None:
        """Begin to compile what the request asks for."""
        assert request.sampling_params.structured_outputs is not None
        future = self._thread.submit(self._grammars.compile, request.sampling_params.structured_outputs)
        self._waiting[request.request_id] = request, future
        future.add_done_callback(lambda _: self._wake())

    def abort(self, request_id: str) -> None:
        """Forget a request that waits; unknown ids are ignored."""
        if request_id in self._waiting:
            _, future = self._waiting.pop(request_id)
            future.cancel()

    def take(self) -> Iterator[tuple[EngineRequest, RequestRejected | None]]:
        """The requests whose waiting is over, in their order, and the verdict where a grammar cannot be compiled."""
        for request, future in list(self._waiting.values()):
            if not future.done():
                return
            del self._waiting[request.request_id]
            error = future.exception()
            if error is None:
                for index in range(request.sampling_params.n):
                    self._held[request.request_id, index] = future.result()
            elif not isinstance(error, RequestRejected):
                logger.error("a grammar was not compiled: %s: %s", type(error).__name__, error)
                error = RequestRejected("grammar_check_failed", f"structured_outputs: {error}; send the request again")
            yield request, error

    def table_sizes(self) -> dict[str, int]:
        """How many entries each table has."""
        return {"requests that wait for a grammar": len(self._waiting), "grammars held": len(self._held)}

    def close(self) -> None:
        """Begin no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._grammars.close()

    def release(self, request_id: str, index: int) -> None:
        """A choice has ended; those without a grammar are ignored."""
        self._held.pop((request_id, index), None)
