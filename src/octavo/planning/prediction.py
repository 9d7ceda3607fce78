"""Predictions: a workload through the simulator, in the figures that `octavo bench serve` measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.bench.outcome import Outcome
from octavo.bench.prompts import WORDS, TokenLine
from octavo.bench.report import Report, summarize
from octavo.bench.workload import LoadRequest, Workload
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams
from octavo.sim.batching import BatchingPolicy
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.replay import ReplayReport
from octavo.sim.simulator import PlainModel, Simulator

ONE_TOKEN_A_WORD = TokenLine(1.0, 0.0)
PLACE_BY_WORD = {word: place for place, word in enumerate(WORDS)}


class MeasuredLoad(NamedTuple):
    """A load that a server had, and when its clients saw their first tokens."""

    workload: Workload
    max_concurrency: int | None
    mean_ttft_ms: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a simulated load came to."""

    report: Report
    replay: ReplayReport


def predict(
    workload: Workload,
    settings: EngineSettings,
    cost_model: CostModel,
    *,
    batching: BatchingPolicy | None = None,
    max_concurrency: int | None = None,
    objective_ms: Mapping[str, float] | None = None,
) -> Prediction:
    """Simulate the load. Raises RequestRejected where a request of it can never be served."""
    requests = engine_requests(workload.requests(ONE_TOKEN_A_WORD))
    simulator = Simulator(
        settings, PlainModel(), cost_model=cost_model, batching=batching, max_concurrency=max_concurrency
    )
    replay = simulator.run(requests)
    return Prediction(summarize(outcomes(requests, replay), objective_ms), replay)


def fit_request_s(cost_model: CostModel, settings: EngineSettings, loads: Sequence[MeasuredLoad]) -> float:
    """Seconds of a request outside of steps: what the mean times to the first token have beyond the simulated ones.

    The lighter the loads, the surer: of one request at a time nobody waits for another.
    """
    gaps_s = []
    for load in loads:
        simulated = predict(load.workload, settings, cost_model, max_concurrency=load.max_concurrency).report
        assert simulated.ttft is not None, "the simulator serves every request"
        gaps_s.append((load.mean_ttft_ms - simulated.ttft.mean_ms) / 1000)
    return max(0.0, sum(gaps_s) / len(gaps_s))


def engine_requests(load: Sequence[LoadRequest], first_token_id: int = 0) -> list[EngineRequest]:
    """The requests as an engine gets them: of each word of their prompts one token, from `first_token_id` on."""
    return [
        EngineRequest(
            f"{index}",
            tuple(first_token_id + PLACE_BY_WORD[word] for word in request.prompt.split()),
            SamplingParams(max_tokens=request.num_output_tokens, temperature=0, ignore_eos=True),
            seed=0,
            arrival_s=request.arrival_s,
        )
        for index, request in enumerate(load)
    ]


def outcomes(requests: Sequence[EngineRequest], replay: ReplayReport) -> list[Outcome]:
    """What a client would have seen of each request."""
    seen = []
    for request in requests:
        times = replay.times_by_id[request.request_id]
        seen.append(
            Outcome(
                sent_s=times.arrival_s,
                ended_s=times.token_s[-1],
                chunk_s=times.token_s,
                num_prompt_tokens=len(request.prompt_token_ids),
                num_output_tokens=len(replay.token_ids[request.request_id, 0]),
                num_cached_tokens=times.num_cached_tokens,
            )
        )
    return seen
