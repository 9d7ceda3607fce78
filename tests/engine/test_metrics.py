"""What Prometheus is told, by a clock that the test sets."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.core.messages import EngineRequest, RequestOutput, StepStats
from octavo.core.sampling_params import SamplingParams
from octavo.engine import metrics
from octavo.engine.metrics import EngineMetrics
from tests.manual_clock import ManualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(100.0)
    monkeypatch.setattr(metrics, "time", clock)
    return clock


def samples(engine_metrics: EngineMetrics) -> dict[str, float]:
    """Every sample by its name, with the labels but the model's behind it."""
    found = {}
    for family in text_string_to_metric_families(engine_metrics.render().decode()):
        for sample in family.samples:
            assert sample.labels.pop("model_name") == "m"
            found["/".join([sample.name, *sample.labels.values()])] = sample.value
    return found


def request(request_id: str, n: int = 1) -> EngineRequest:
    params = SamplingParams(n=n, max_tokens=8)
    return EngineRequest(request_id, tuple(range(40)), params, seed=0, arrival_s=99.0)


def test_a_request_is_timed_from_the_door_to_its_last_token(clock):
    counted = EngineMetrics("m")
    counted.add_request(request("a"))
    clock.now_s = 102.0
    counted.take_outputs([RequestOutput("a", 0, (1,), scheduled_s=99.5)], [])
    clock.now_s = 102.5
    counted.take_outputs([RequestOutput("a", 0, (2,), scheduled_s=99.5)], [])
    clock.now_s = 103.0
    counted.take_outputs([RequestOutput("a", 0, (3,), finish_reason="length", scheduled_s=99.5)], [])
    found = samples(counted)
    for name, total, count in (
        ("time_to_first_token_seconds", 3.0, 1),
        ("request_queue_time_seconds", 0.5, 1),
        ("request_prefill_time_seconds", 2.5, 1),
        ("inter_token_latency_seconds", 1.0, 2),
        ("request_time_per_output_token_seconds", 0.5, 1),
        ("request_decode_time_seconds", 1.0, 1),
        ("e2e_request_latency_seconds", 4.0, 1),
        ("request_prompt_tokens", 40, 1),
        ("request_generation_tokens", 3, 1),
    ):
        assert found[f"octavo:{name}_sum"] == pytest.approx(total), name
        assert found[f"octavo:{name}_count"] == count, name
    assert found["octavo:prompt_tokens_total"] == 40
    assert found["octavo:generation_tokens_total"] == 3
    assert found["octavo:request_success_total/length"] == 1


def test_choices_share_a_prompt_and_end_each_for_itself(clock):
    counted = EngineMetrics("m")
    counted.add_request(request("a", n=2))
    counted.take_outputs([RequestOutput("a", 0, (1,)), RequestOutput("a", 1, (1,))], [])
    counted.take_outputs([RequestOutput("a", 1, (), finish_reason="abort")], [("a", 0)])
    found = samples(counted)
    assert found["octavo:prompt_tokens_total"] == 40
    assert found["octavo:time_to_first_token_seconds_count"] == 2
    assert (found["octavo:request_success_total/stop"], found["octavo:request_success_total/abort"]) == (1, 1)
    assert found["octavo:e2e_request_latency_seconds_count"] == 1  # an abort has no latency worth knowing


def test_what_is_forgotten_or_unknown_counts_no_more(clock):
    counted = EngineMetrics("m")
    counted.add_request(request("a"))
    counted.forget("a")
    counted.forget("a")
    counted.take_outputs([RequestOutput("a", 0, (1,)), RequestOutput("b", 0, (1,))], [("a", 0)])
    assert samples(counted)["octavo:generation_tokens_total"] == 0


def test_states_are_gauges_and_totals_are_counters():
    counted = EngineMetrics("m", prefix="vllm:")
    counted.take_stats(StepStats(1, 3, 2, 64, 25, 100, 1, 500, 100))
    counted.take_stats(StepStats(2, 4, 0, 0, 50, 100, 1, 700, 250))
    counted.count_rejection("context_length_exceeded")
    found = samples(counted)
    assert (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (4, 0)
    assert found["vllm:kv_cache_usage_perc"] == 0.5
    assert found["vllm:prefix_cache_queries_total"] == 700
    assert found["vllm:prefix_cache_hits_total"] == 250
    assert found["vllm:num_preemptions_total"] == 1
    assert (found["vllm:iteration_tokens_total_sum"], found["vllm:iteration_tokens_total_count"]) == (64, 1)
    assert found["vllm:admission_rejections_total/context_length_exceeded"] == 1


def take_drafts(counted: EngineMetrics, num_drafts: int, num_tokens: int, accepted_per_pos: tuple[int, ...]) -> None:
    """What a step says of all drafts since the engine process began."""
    counted.take_stats(
        StepStats(
            num_tokens=4,
            num_drafts_total=num_drafts,
            num_draft_tokens_total=num_tokens,
            num_accepted_tokens_per_pos_total=accepted_per_pos,
        )
    )


def test_drafts_are_counted_by_place_and_anew_after_a_restart():
    counted = EngineMetrics("m")
    take_drafts(counted, 3, 9, (3, 1, 0))
    take_drafts(counted, 3, 9, (3, 1, 0))
    take_drafts(counted, 4, 14, (4, 2, 1, 1, 0))
    counted.begin_process()
    take_drafts(counted, 1, 2, (1, 1))
    found = samples(counted)
    assert found["octavo:spec_decode_num_drafts_total"] == 5
    assert found["octavo:spec_decode_num_draft_tokens_total"] == 16
    assert found["octavo:spec_decode_num_accepted_tokens_total"] == 10
    per_place = [found[f"octavo:spec_decode_num_accepted_tokens_per_pos_total/{place}"] for place in range(5)]
    assert per_place == [5, 3, 1, 1, 0]
