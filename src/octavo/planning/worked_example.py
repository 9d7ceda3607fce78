"""The worked example: requests of 10, 40, 20 and 80 tokens on four slots, and two that wait."""

from __future__ import annotations

from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams
from octavo.sim.batching import BatchingPolicy, ContinuousBatching, StaticBatching
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel, Simulator
from octavo.sim.timeline import Timeline

NUM_SLOTS = 4
OUTPUT_LENS = {"A": 10, "B": 40, "C": 20, "D": 80, "E": 70, "F": 60}
A_STEP_A_SECOND = CostModel(fixed_s=1.0, token_s=0.0, pair_s=0.0)


def worked_example() -> list[Timeline]:
    """Static batching, and continuous batching, in which a slot is given away as soon as its request ends."""
    policies: dict[str, BatchingPolicy] = {"static": StaticBatching(NUM_SLOTS), "continuous": ContinuousBatching()}
    settings = EngineSettings(num_blocks=64, max_num_seqs=NUM_SLOTS)
    timelines = []
    for name, batching in policies.items():
        simulator = Simulator(settings, PlainModel(), cost_model=A_STEP_A_SECOND, batching=batching)
        report = simulator.run(
            EngineRequest(request_id, (1,), SamplingParams(max_tokens=length), seed=0)
            for request_id, length in OUTPUT_LENS.items()
        )
        timelines.append(Timeline.of(f"{name}, {report.num_steps} steps", NUM_SLOTS, report))
    return timelines
