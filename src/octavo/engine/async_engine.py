"""AsyncEngine: an engine in a process of its own. Text goes in, streams of text come out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from octavo.config import EngineConfig
from octavo.core.admission import RequestRejected
from octavo.core.messages import StepStats
from octavo.core.sampling_params import SamplingParams
from octavo.core.snapshot import Snapshot
from octavo.engine import wire
from octavo.engine.core_client import CoreClient
from octavo.engine.engine_status import EngineLife, EngineState, EngineStatus, EngineUnavailableError, describe_exit
from octavo.engine.front import Front
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.heartbeat_watch import HeartbeatWatch
from octavo.engine.history import History
from octavo.engine.input_processor import InputProcessor, Prompt
from octavo.engine.metrics import EngineMetrics
from octavo.engine.outputs import GenerationOutput
from octavo.engine.queue_limit import QueueLimit
from octavo.engine.request_terms import DEFAULT_TERMS, RequestTerms
from octavo.engine.request_tracer import RequestTracer
from octavo.engine.stats_log import StatsLog
from octavo.engine.text_workers import TextWorkers
from octavo.weights.source import CheckpointError

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

MAX_TURN_S = 0.002  # in which the engine's messages are taken in, and clients wait
MAX_STEP_S = 600.0  # 512 tokens through 8 billion parameters on two cores take minutes

logger = logging.getLogger("octavo.engine")


class AsyncEngine:
    """`start` it, then `submit` or `generate`; `close` it in any case.

    When the engine process dies or stands still, every stream ends with EngineUnavailableError, and so does every later
    call until a `restart`.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        metrics_prefix: str = "octavo:",
        log_format: str = "text",
        tracer: RequestTracer | None = None,
    ) -> None:
        self._config = config
        self._metrics_prefix = metrics_prefix
        self._log_format = log_format  # of the engine process
        self._tracer = tracer
        self._metrics: EngineMetrics | None = None  # until the model's name is known
        self._reset()

    def _reset(self) -> None:
        """As it is before the engine process is started."""
        self._life = EngineLife()
        self._stats = StepStats()
        self._stats_log = StatsLog()
        self._client: CoreClient | None = None
        self._ready: wire.Ready | None = None
        self._front: Front | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the engine process and return at once; `status` and `wait_until_ready` tell how it goes."""
        self._client = await CoreClient.launch(self._config, self._log_format)
        watch = HeartbeatWatch(self._client, self._life)
        self._tasks = [asyncio.create_task(self._receive(self._client, watch)), asyncio.create_task(watch.keep())]

    async def wait_until_ready(self) -> None:
        """Wait for the end of the start. Raises EngineUnavailableError, with the cause, if it failed."""
        await self._life.wait_until_ready()

    async def wait_until_dead(self) -> None:
        """Wait for the end of the engine process."""
        await self._life.wait_until_dead()

    async def restart(self) -> None:
        """Start a new engine process in the place of one that is dead; returns at once, like `start`."""
        await self.close()
        self._reset()
        await self.start()

    def check_ready(self) -> None:
        """Raise EngineUnavailableError, which says why, unless requests are welcome."""
        self._life.check_ready()

    def check_not_overloaded(self, num_choices: int) -> None:
        """Raise EngineOverloadedError if so many more may not come; what is costly comes after this.

        Raises EngineUnavailableError.
        """
        self.check_ready()
        self._require_front().check_not_overloaded(num_choices)

    @property
    def status(self) -> EngineStatus:
        """How the engine is."""
        return self._life.status

    @property
    def stats(self) -> StepStats:
        """The state after the last step."""
        return self._stats

    @property
    def history(self) -> History:
        """The last minutes, on the clock of time.monotonic(). Raises EngineUnavailableError until there are any."""
        return self._require_front().history

    async def inspect(self) -> Snapshot:
        """The requests and the KV blocks between two steps, so it may take a step. Raises EngineUnavailableError."""
        return (await self._inspect()).snapshot

    async def table_sizes(self) -> dict[str, int]:
        """How many entries each table of both processes has for requests: 0, when no request is under way."""
        inspection = await self._inspect()
        return inspection.table_sizes | self._require_front().table_sizes()

    def render_metrics(self) -> bytes:
        """Counts, gauges and histograms in the text format of Prometheus; nothing while the engine is loading."""
        return self._metrics.render() if self._metrics else b""

    @property
    def ready(self) -> wire.Ready:
        """The resolved configuration, limits and memory plan. Raises EngineUnavailableError until there are any."""
        if self._ready is None:
            raise EngineUnavailableError(self.status)
        return self._ready

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises EngineUnavailableError until there is one."""
        return self._require_front().tokenizer

    @property
    def process_id(self) -> int | None:
        """The engine process's id; None before the start and after the end."""
        return self._client.process_id if self._client else None

    @property
    def texts(self) -> TextWorkers:
        """What makes prompts of conversations, and ids of texts. Raises EngineUnavailableError until it is there."""
        return self._require_front().texts

    async def submit(
        self, prompts: Sequence[Prompt], params: SamplingParams, terms: RequestTerms = DEFAULT_TERMS
    ) -> GenerationStream:
        """Queue one request a prompt, all or none; close the stream that is returned in any case.

        Raises ParameterError and RequestRejected for what cannot be served, and EngineUnavailableError.
        """
        arrival_s = time.monotonic()
        self.check_not_overloaded(len(prompts) * params.n)
        front = self._require_front()
        with front.limit.reserve(len(prompts) * params.n):
            tokenized = await front.texts.tokenize(prompts, truncates=params.truncate_prompt_tokens is not None)
            if params.structured_outputs is not None:
                await front.send_vocabulary()
        self.check_ready()  # that may have taken long
        stream = front.submit(tokenized, params, terms, arrival_s)
        if params.structured_outputs is not None:
            try:
                await stream.wait_until_begun()  # whether its grammar can be compiled, only the engine process knows
            except BaseException:
                stream.close()
                raise
        return stream

    async def generate(
        self, prompt: Prompt, params: SamplingParams, terms: RequestTerms = DEFAULT_TERMS
    ) -> AsyncGenerator[GenerationOutput, None]:
        """The outputs of one request. Cancelling or closing the generator aborts all its choices."""
        stream = await self.submit([prompt], params, terms)
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    async def drain(self, timeout_s: float) -> bool:
        """Take no new requests and wait for those that run. Returns whether they all ended in time."""
        self._life.drain()
        if self._front is None:
            return True
        try:
            await asyncio.wait_for(self._front.wait_until_idle(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End every stream and the process. Harmless when called twice."""
        self._die("it was closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._front is not None:
            self._front.texts.close()
        if self._client is not None:
            if self._ready is None:
                self._client.kill()  # it listens only once it is ready
            await self._client.close()
            self._client = None

    async def _inspect(self) -> wire.Inspection:
        if self.status.state is EngineState.DEAD:
            raise EngineUnavailableError(self.status)
        return await self._require_front().inspect()

    async def _receive(self, client: CoreClient, watch: HeartbeatWatch) -> None:
        """Take what the engine process sends, until it is gone."""
        opening = asyncio.create_task(asyncio.to_thread(_open_tokenizer, self._config.model))
        turn_ends_s = 0.0
        try:
            while (message := await client.receive()) is not None:
                watch.hear()
                if isinstance(message, wire.Failed):
                    self._life.failure = message.message
                    break
                if isinstance(message, wire.Ready):
                    self._enter_ready(message, client, await opening)
                else:
                    self._take(message, client)
                turn_ends_s = await _give_way(turn_ends_s)
        except CheckpointError as error:
            self._life.failure = str(error)
        except Exception as error:
            logger.exception("the engine's front failed")
            self._life.failure = f"{type(error).__name__}: {error}"
        finally:
            opening.cancel()
        exit_status = await client.close()
        self._die(self._life.failure or describe_exit(exit_status))

    def _enter_ready(self, ready: wire.Ready, client: CoreClient, tokenizer: Tokenizer) -> None:
        inputs = InputProcessor(
            tokenizer,
            ready.limits,
            vocab_size=ready.vocab_size,
            max_logprobs=ready.config.max_logprobs,
            eos_token_ids=ready.eos_token_ids,
            seed=ready.config.seed,
        )
        if self._metrics is None:
            name = ready.config.served_model_name or ready.config.model
            self._metrics = EngineMetrics(name, self._metrics_prefix, self._tracer)
        self._metrics.begin_process()
        self._front = Front(tokenizer, inputs, self._metrics, _queue_limit(ready.config), client.send)
        self._ready = ready
        self._stats = StepStats(num_blocks=ready.limits.num_blocks, num_free_blocks=ready.limits.num_blocks)
        self._life.become_ready()

    def _take(self, message: wire.CoreMessage, client: CoreClient) -> None:
        match message:
            case wire.Phase(name):
                self._life.phase = name
            case wire.Outputs(outputs, stats):
                self._stats = stats
                self._stats_log.take(stats, sum(len(output.new_token_ids) for output in outputs))
                self._require_front().take_outputs(outputs, stats)
            case wire.Inspection():
                self._require_front().take_inspection(message)
            case wire.Rejected(request_id, code, text, param):
                self._require_front().reject(request_id, RequestRejected(code, text, param))
            case wire.Heartbeat(step_s) if step_s > MAX_STEP_S:
                self._life.failure = f"a step has taken {step_s:.0f} s; at most {MAX_STEP_S:.0f} s are allowed"
                client.kill()

    def _require_front(self) -> Front:
        if self._front is None:
            raise EngineUnavailableError(self.status)
        return self._front

    def _die(self, failure: str) -> None:
        if self._life.die(failure) and self._front is not None:
            self._front.fail_all(EngineUnavailableError(self.status))


async def _give_way(turn_ends_s: float) -> float:
    """When the next turn ends; lets the others of the event loop have theirs where this one has ended.

    Receiving waits for nothing while there is more, and a small model says more than can be taken in.
    """
    if time.monotonic() < turn_ends_s:
        return turn_ends_s
    await asyncio.sleep(0)
    return time.monotonic() + MAX_TURN_S


def _queue_limit(config: EngineConfig) -> QueueLimit:
    assert config.max_queued_requests is not None and config.max_queued_tokens is not None, "resolved"
    return QueueLimit(
        max_num_seqs=config.max_num_seqs,
        max_queued_requests=config.max_queued_requests,
        max_queued_tokens=config.max_queued_tokens,
    )


def _open_tokenizer(model: str) -> Tokenizer:
    # Not above: numpy and the tokenizer take long to import, and the engine process can load the model meanwhile.
    from octavo.engine.tokenizer import Tokenizer
    from octavo.weights.checkpoint import open_checkpoint

    return Tokenizer(open_checkpoint(model).tokenizer_spec)
