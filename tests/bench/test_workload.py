"""What a load is made of: lengths, arrivals, prompts, traces."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.arrivals import arrival_times
from octavo.bench.lengths import Lengths
from octavo.bench.prompts import CALIBRATION_TEXTS, TokenLine
from octavo.bench.traces import TracedRequest, read_trace
from octavo.bench.workload import RandomWorkload, TraceWorkload

ONE_TOKEN_A_WORD = TokenLine(1.0, 0.0)


def test_lengths_are_what_the_text_writes():
    rng = random.Random(0)
    assert [Lengths.parse("512").sample(rng) for _ in range(3)] == [512] * 3
    uniform = [Lengths.parse("uniform:64,512").sample(rng) for _ in range(2_000)]
    assert min(uniform) >= 64 and max(uniform) <= 512 and 270 < sum(uniform) / 2_000 < 306
    lognormal = sorted(Lengths.parse("lognormal:256,0.8").sample(rng) for _ in range(2_000))
    assert 230 < lognormal[1_000] < 284 and lognormal[-100] > 2 * 256


@pytest.mark.parametrize("text", ["", "0", "-4", "nan", "inf", "uniform:9", "uniform:9,3", "normal:1,2", "1,2", "x:5"])
def test_other_lengths_are_refused(text):
    with pytest.raises(ValueError, match="write them like"):
        Lengths.parse(text)


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 5.0, math.inf])
def test_arrivals_have_the_rate_and_the_burstiness(burstiness):
    times = arrival_times(20_001, request_rate=50, burstiness=burstiness, rng=random.Random(1))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert times[0] == 0 and mean == pytest.approx(1 / 50, rel=0.05)
    assert variance / mean**2 == pytest.approx(1 / burstiness, rel=0.1, abs=1e-9)


def test_an_infinite_rate_sends_all_at_once():
    assert arrival_times(3, request_rate=math.inf, burstiness=1, rng=random.Random()) == [0, 0, 0]


@given(slope=st.floats(0.5, 3), added=st.integers(0, 40), wanted=st.integers(64, 4_096))
def test_a_prompt_has_the_wanted_tokens_by_the_servers_count(slope, added, wanted):
    def count(num_words: int) -> int:
        return round(slope * num_words + added)

    line = TokenLine.through((count(1), count(len(CALIBRATION_TEXTS[1].split()))))
    error_of_slope = 1 / 61  # two counts are rounded, 61 words apart
    tolerance = slope + 2 + error_of_slope * wanted / (slope - error_of_slope)
    assert count(line.num_words(wanted)) == pytest.approx(wanted, abs=tolerance)


def test_a_server_that_does_not_count_is_refused():
    with pytest.raises(ValueError, match="counts 0 tokens for one word and 0 for 62"):
        TokenLine.through((0, 0))


def test_the_same_seed_gives_the_same_requests_and_shared_prefixes():
    workload = RandomWorkload(6, Lengths.parse("100"), Lengths.parse("7"), prefix_len=40, num_prefixes=2, seed=3)
    requests = workload.requests(ONE_TOKEN_A_WORD)
    assert requests == workload.requests(ONE_TOKEN_A_WORD)
    heads = [request.prompt.split()[:40] for request in requests]
    assert heads[0] == heads[2] == heads[4] != heads[1] == heads[3] == heads[5]
    assert len({request.prompt for request in requests}) == 6
    assert {(len(request.prompt.split()), request.num_output_tokens) for request in requests} == {(100, 7)}


def test_an_azure_trace_is_read(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9305900,9,1\n"
    )
    assert read_trace(path, 10) == [TracedRequest(0, 374, 44), TracedRequest(4.25, 9, 1)]
    assert len(read_trace(path, 1)) == 1


def test_a_mooncake_trace_is_replayed_with_its_shared_prefixes(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 1000, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3000, "input_length": 700, "output_length": 0, "hash_ids": [0, 5]}\n'
    )
    first, second = TraceWorkload(read_trace(path, 10), speed=4, max_output_len=5).requests(ONE_TOKEN_A_WORD)
    assert (first.arrival_s, first.num_output_tokens) == (0, 5)
    assert (second.arrival_s, second.num_output_tokens) == (0.5, 1)
    first_words, second_words = first.prompt.split(), second.prompt.split()
    assert (len(first_words), len(second_words)) == (1100, 700)
    assert first_words[:512] == second_words[:512] and first_words[512:700] != second_words[512:]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n"])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"trace\.csv"):
        read_trace(path, 10)


def test_lengths_are_the_same_whatever_a_server_counts():
    workload = RandomWorkload(50, Lengths.parse("lognormal:100,0.5"), Lengths.parse("uniform:1,30"), request_rate=9)
    shapes = workload.shapes()
    for line in (ONE_TOKEN_A_WORD, TokenLine(2.0, 4.0)):
        requests = workload.requests(line)
        assert [(request.arrival_s, request.num_output_tokens) for request in requests] == [
            (shape.arrival_s, shape.num_output_tokens) for shape in shapes
        ]
        counts = [len(request.prompt.split()) * line.tokens_per_word + line.num_added_tokens for request in requests]
        assert counts == pytest.approx([shape.num_prompt_tokens for shape in shapes], abs=6)
