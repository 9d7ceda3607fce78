"""Front: text on one side, the core's requests and outputs on the other. It knows nothing of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from octavo.core.admission import RequestRejected
from octavo.core.messages import RequestOutput, StepStats
from octavo.core.sampling_params import SamplingParams
from octavo.engine import wire
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.history import History
from octavo.engine.input_processor import InputProcessor, Prompt, prompt_text
from octavo.engine.metrics import EngineMetrics
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.queue_limit import EngineOverloadedError, QueueLimit
from octavo.engine.request_terms import RequestTerms
from octavo.engine.text_workers import TextWorkers

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class Front:
    """The requests in flight and their streams. `send` takes what is meant for the core."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        inputs: InputProcessor,
        metrics: EngineMetrics,
        limit: QueueLimit,
        send: Callable[[wire.FrontMessage], None],
    ) -> None:
        self.tokenizer = tokenizer
        self.texts = TextWorkers(tokenizer, inputs)
        self._inputs = inputs
        self._outputs = OutputProcessor(tokenizer)
        self.limit = limit
        self._metrics = metrics
        self._send = send
        self._has_sent_vocabulary = False
        self._sends_vocabulary = asyncio.Lock()
        self._stream_by_id: dict[str, GenerationStream] = {}
        self._inspection: asyncio.Future[wire.Inspection] | None = None  # under way, for all who wait for one
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(
        self, prompts: Sequence[Prompt], params: SamplingParams, terms: RequestTerms, arrival_s: float
    ) -> GenerationStream:
        """Send one request a prompt, all or none; `arrival_s` is when they came to the door, by time.monotonic().

        Raises ParameterError, RequestRejected and EngineOverloadedError.
        """
        with self._refusals_counted():
            requests = [self._inputs.process(prompt, params, terms=terms, arrival_s=arrival_s) for prompt in prompts]
            num_tokens = sum(len(request.prompt_token_ids) for request in requests)
            self.limit.check(params.n * len(requests), num_tokens)
        stream = GenerationStream(requests, self._abort)
        for request, prompt in zip(requests, prompts, strict=True):
            self._stream_by_id[request.request_id] = stream
            self._outputs.add_request(request, prompt_text(prompt))
            self._metrics.add_request(request, terms.traceparent)
            self.limit.enter(request.request_id, params.n, len(request.prompt_token_ids))
            self._send(wire.Add(request))
        self._idle.clear()
        return stream

    async def send_vocabulary(self) -> None:
        """Tell the core the model's tokens, unless it knows them: before the first request that has a grammar."""
        async with self._sends_vocabulary:
            if not self._has_sent_vocabulary:
                self._send(wire.Learn(await asyncio.to_thread(self._inputs.vocabulary)))
                self._has_sent_vocabulary = True

    def check_not_overloaded(self, num_choices: int) -> None:
        """Raise EngineOverloadedError, which costs nothing, before anything is done for a request that cannot wait."""
        with self._refusals_counted():
            self.limit.check(num_choices)

    def take_outputs(self, outputs: Sequence[RequestOutput], stats: StepStats) -> None:
        """Hand one step's outputs to their streams; tell the core of choices that ended here, by a stop string."""
        processed = self._outputs.process(outputs)
        for begun in outputs:
            self.limit.begin(begun.request_id)
        self._metrics.take_stats(stats)
        self._metrics.take_outputs(outputs, processed.stopped)
        for request_id, index in processed.stopped:
            self._send(wire.Abort(request_id, index))
        for output in processed.outputs:
            self._stream_by_id[output.request_id].put(output)
            if output.finished:
                self._forget(output.request_id)

    @property
    def history(self) -> History:
        """The last minutes."""
        return self._metrics.history

    def table_sizes(self) -> dict[str, int]:
        """How many entries each table has for requests under way."""
        return {
            "streams": len(self._stream_by_id),
            "outputs": self._outputs.num_requests,
            "request times": self._metrics.num_requests,
            "queue limit": self.limit.num_entries,
        }

    async def inspect(self) -> wire.Inspection:
        """The core as it is between two steps; it is inspected once for all who wait."""
        if self._inspection is None:
            self._inspection = asyncio.get_running_loop().create_future()
            self._send(wire.Inspect())
        return await asyncio.shield(self._inspection)

    def take_inspection(self, inspection: wire.Inspection) -> None:
        """Hand it to all who wait for one."""
        if self._inspection is not None:
            self._inspection.set_result(inspection)
            self._inspection = None

    def fail(self, request_id: str, error: Exception) -> None:
        """End the stream of a request with an error. Unknown ids are ignored."""
        if request_id in self._stream_by_id:
            self._stream_by_id[request_id].fail(error)
            self._forget(request_id)

    def reject(self, request_id: str, rejection: RequestRejected) -> None:
        """End the stream of a request that the core refused."""
        self._metrics.count_rejection(rejection.code)
        self.fail(request_id, rejection)

    def fail_all(self, error: Exception) -> None:
        """End every stream and every inspection with an error."""
        if self._inspection is not None:
            self._inspection.set_exception(error)
            self._inspection.exception()  # it may be that nobody waits any more
            self._inspection = None
        for request_id in list(self._stream_by_id):
            self.fail(request_id, error)

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    @contextmanager
    def _refusals_counted(self) -> Iterator[None]:
        try:
            yield
        except (RequestRejected, EngineOverloadedError) as refusal:
            self._metrics.count_rejection(refusal.code)
            raise

    def _abort(self, request_id: str) -> None:
        if request_id in self._stream_by_id:
            self._forget(request_id)
            self._send(wire.Abort(request_id))

    def _forget(self, request_id: str) -> None:
        self._outputs.forget(request_id)
        self._metrics.forget(request_id)
        self.limit.leave(request_id)
        del self._stream_by_id[request_id]
        if not self._stream_by_id:
            self._idle.set()
