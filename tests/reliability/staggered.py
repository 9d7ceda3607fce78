"""Requests that arrive one after another at a real engine, and what became of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo import LLM, SamplingParams
from octavo.core.messages import TokenLogprobs
from octavo.engine.input_processor import Prompt


@dataclass
class Arrival:
    """A request, and the step before which it comes."""

    prompt: Prompt
    params: SamplingParams
    step: int = 0


@dataclass
class Answer:
    """All that the core said of a request."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    num_preemptions: int = field(default=0, compare=False)


class StaggeredEngine:
    """An engine without a front: token ids in, token ids out."""

    def __init__(self, llm: LLM) -> None:
        self.block_bytes = llm.engine.memory.block_bytes
        self._core = llm.engine.core
        self._inputs = llm._input_processor

    def serve(self, *arrivals: Arrival) -> list[Answer]:
        """The answers, in the order of the arrivals."""
        requests = [self._inputs.process(arrival.prompt, arrival.params) for arrival in arrivals]
        answer_by_id = {request.request_id: Answer() for request in requests}
        step = 0
        while self._core.has_unfinished or step <= max(arrival.step for arrival in arrivals):
            for request, arrival in zip(requests, arrivals, strict=True):
                if arrival.step == step:
                    self._core.add_request(request)
            for output in self._core.step().outputs:
                answer = answer_by_id[output.request_id]
                answer.token_ids += output.new_token_ids
                answer.logprobs += output.logprobs
                answer.finish_reason, answer.error = output.finish_reason, output.error
            for running in self._core.scheduler.requests():
                answer_by_id[running.request_id].num_preemptions = running.num_preemptions
            step += 1
        return list(answer_by_id.values())

    def serve_alone(self, arrival: Arrival) -> Answer:
        """One answer, with nobody else there."""
        [answer] = self.serve(arrival)
        return answer

    @property
    def is_empty(self) -> bool:
        """Whether every block is free."""
        pool = self._core.scheduler.kv.pool
        return pool.num_free == pool.num_blocks


@contextmanager
def open_engine(path: Path, **options: Any) -> Iterator[StaggeredEngine]:
    with LLM(str(path), **({"num_threads": 1, "max_model_len": 256} | options)) as llm:
        yield StaggeredEngine(llm)


def params(**fields: Any) -> SamplingParams:
    """32 tokens with log-probabilities, whatever they are, unless the fields say otherwise."""
    defaults: dict[str, Any] = {"max_tokens": 32, "ignore_eos": True, "logprobs": 2}
    return SamplingParams(**(defaults | fields))
