"""Stands for the engine process: says what the test wants said, in the messages that the real one sends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from octavo.config import EngineConfig, ModelConfig
from octavo.core.admission import AdmissionLimits
from octavo.core.messages import EngineRequest, RequestOutput, StepStats, TokenLogprobs
from octavo.core.snapshot import Snapshot
from octavo.engine import wire
from octavo.engine.memory import MemoryPlan, MemoryUse
from tests.engine.tiny_model import EOS_ID, NUM_TOKENS, byte_id

MAX_MODEL_LEN = 512
TEXT = "Hallo, Wörld 🦉!"

Script = Callable[[EngineRequest], list[RequestOutput]]


class ScriptedCore:
    """Takes the place of CoreClient. Answers each request by `script`, one output a step, unless `is_holding`."""

    def __init__(self) -> None:
        self.sent: list[wire.FrontMessage] = []  # without heartbeats, which come when they like
        self.script: Script = says(TEXT)
        self.is_holding = False
        self.max_model_len = MAX_MODEL_LEN
        self.sampling_defaults: dict[str, int | float] = {}
        self.max_logprobs = 20
        self.process_id = 0
        self._inbox: asyncio.Queue[wire.CoreMessage | None] = asyncio.Queue()

    async def launch(self, config: EngineConfig, log_format: str) -> ScriptedCore:
        self.config = config
        return self

    @property
    def requests(self) -> list[EngineRequest]:
        return [message.request for message in self.sent if isinstance(message, wire.Add)]

    @property
    def aborted(self) -> list[str]:
        return [message.request_id for message in self.sent if isinstance(message, wire.Abort)]

    def send(self, message: wire.FrontMessage) -> None:
        if not isinstance(message, wire.FrontHeartbeat):
            self.sent.append(message)
        if isinstance(message, wire.Add) and not self.is_holding:
            self.answer(message.request)
        if isinstance(message, wire.Inspect) and not self.is_holding:
            self.say(wire.Inspection(Snapshot((), (), "." * (self.max_model_len // 16), 16)))

    def answer(self, request: EngineRequest) -> None:
        for output in self.script(request):
            self.say_outputs(output)

    def say_outputs(self, *outputs: RequestOutput) -> None:
        self.say(wire.Outputs(outputs, StepStats(num_running=1)))

    def say(self, message: wire.CoreMessage) -> None:
        self._inbox.put_nowait(message)

    def become_ready(self) -> None:
        self.say(
            wire.Ready(
                limits=AdmissionLimits(self.max_model_len, num_blocks=self.max_model_len // 16, block_size=16),
                config=replace(self.config, max_logprobs=self.max_logprobs).resolve(
                    max_model_len=self.max_model_len,
                    kv_cache_dtype="float32",
                    num_kv_tokens=self.max_model_len,
                    num_threads=1,
                    served_model_name="tiny",
                ),
                memory=_memory_plan(),
                vocab_size=NUM_TOKENS,
                eos_token_ids=(EOS_ID,),
                sampling_defaults=self.sampling_defaults,
            )
        )

    async def receive(self) -> wire.CoreMessage | None:
        return await self._inbox.get()

    def kill(self) -> None:
        self._inbox.put_nowait(None)

    async def close(self) -> int:
        return -9


def says(text: str | bytes, finish_reason: str = "stop") -> Script:
    """Every choice is this text, one token a byte. The most likely tokens are the one chosen and, far off, "?"."""
    data = text.encode() if isinstance(text, str) else text
    token_ids = [byte_id(byte) for byte in data] + ([EOS_ID] if finish_reason == "stop" else [])

    def script(request: EngineRequest) -> list[RequestOutput]:
        params = request.sampling_params
        outputs = []
        for token_id in token_ids:
            top = ((token_id, -0.5), (byte_id(ord("?")), -math.inf))[: params.logprobs]
            outputs += [
                RequestOutput(
                    request_id=request.request_id,
                    index=index,
                    new_token_ids=(token_id,),
                    logprobs=() if params.logprobs is None else (TokenLogprobs(-0.5, 1, top),),
                    num_cached_tokens=3,
                )
                for index in range(params.n)
            ]
        if params.prompt_logprobs is not None:
            scores = tuple(_score(token_id, params.prompt_logprobs) for token_id in request.prompt_token_ids[1:])
            outputs[0] = replace(outputs[0], prompt_logprobs=scores)
        for place in range(-params.n, 0):
            outputs[place] = replace(outputs[place], finish_reason=finish_reason)
        return outputs

    return script


def _score(token_id: int, num_top: int) -> TokenLogprobs:
    """The token of a prompt is the second most likely one; "?" would be the most likely."""
    return TokenLogprobs(-1.5, 2, ((byte_id(ord("?")), -0.25), (token_id, -1.5))[:num_top])


def fails(request: EngineRequest) -> list[RequestOutput]:
    """The request ends with an error after one token."""
    return [
        RequestOutput(request.request_id, 0, (byte_id(ord("H")),)),
        RequestOutput(request.request_id, 0, (), finish_reason="error", error="the logits are not finite"),
    ]


def _memory_plan() -> MemoryPlan:
    model = ModelConfig("llama", 320, 64, 128, 2, 4, 2, 16, MAX_MODEL_LEN, 1e-5, 10000.0)
    return MemoryPlan(
        MemoryUse(1 << 30, {"float32": 1 << 20}, 1 << 20),
        model,
        "float32",
        MAX_MODEL_LEN // 16,
        MAX_MODEL_LEN,
        8,
        "a rule",
    )
