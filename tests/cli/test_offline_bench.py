"""octavo bench latency and throughput, on a model that answers in milliseconds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from octavo.cli.offline_bench import LatencyOptions, ThroughputOptions, bench_latency, bench_throughput


def test_throughput_comes_with_latencies(tiny_model: Path, capsys):
    bench_throughput(ThroughputOptions(model=str(tiny_model), num_prompts=5, input_len="20", output_len="7"))
    printed = capsys.readouterr().out
    assert re.search(r"requests +5 sent, 0 failed", printed) and re.search(r"tokens +100 in .*, 35 out", printed)
    for name in ("output throughput", "time to first token", "inter-token latency", "end to end"):
        assert float(re.search(rf"{name} +([\d.]+)", printed)[1]) > 0  # type: ignore[index]


def test_latency_is_that_of_whole_batches(tiny_model: Path, capsys):
    bench_latency(LatencyOptions(model=str(tiny_model), batch_size=3, input_len=9, output_len=4, num_iters=2))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a batch: 3 requests of 9 tokens, 4 out each"
    mean, p50, *_, longest = (float(figure) for figure in lines[-1].split())
    assert 0 < p50 <= longest and float(lines[1].split()[2]) == pytest.approx(1000 * 12 / mean, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"model": "nothing.gguf"}, "there is no nothing.gguf"), ({"input_len": "5000"}, "maximum context length")],
)
def test_what_cannot_be_run_is_said(tiny_model: Path, capsys, changes, message):
    with pytest.raises(typer.Exit):
        bench_throughput(ThroughputOptions(**{"model": str(tiny_model)} | changes))
    assert message in capsys.readouterr().err
