"""octavo simulate: figures that can be worked out by hand, its files, its picture."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from octavo.bench.lengths import Lengths
from octavo.bench.workload import RandomWorkload
from octavo.cli.workload_options import WorkloadOptions
from octavo.core.step_work import StepWork
from octavo.planning.comparison import render
from octavo.planning.prediction import (
    ONE_TOKEN_A_WORD,
    MeasuredLoad,
    Prediction,
    engine_requests,
    fit_request_s,
    predict,
)
from octavo.planning.step_costs import FitQuality, read_cost_model, read_steps, write_cost_model
from octavo.planning.worked_example import worked_example
from octavo.sim.batching import StaticBatching
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.timeline import draw, render_beside

COST = CostModel(fixed_s=0.01, token_s=0.001, pair_s=0.0)
SETTINGS = EngineSettings(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=100)
PICTURE = """\
static, 150 steps: 47% of the slots used   continuous, 80 steps: 88% of the slots used
slot 1  AA............................     slot 1  AAEEEEEEEEEEEEEE
slot 2  BBBBBBBB........FFFFFFFFFFFF..     slot 2  BBBBBBBB........
slot 3  CCCC..........................     slot 3  CCCCFFFFFFFFFFFF
slot 4  DDDDDDDDDDDDDDDDEEEEEEEEEEEEEE     slot 4  DDDDDDDDDDDDDDDD"""


def workload(num_requests: int, input_len: str, output_len: str, **more: float) -> RandomWorkload:
    return RandomWorkload(num_requests, Lengths.parse(input_len), Lengths.parse(output_len), **more)  # type: ignore[arg-type]


def test_the_figures_of_one_request():
    report = predict(workload(1, "250", "3"), SETTINGS, COST).report
    assert report.ttft is not None and report.itl is not None
    assert report.ttft.max_ms == pytest.approx(3 * 10 + 250)  # chunks of 100, 100 and 50
    assert report.itl.max_ms == pytest.approx(10 + 1)
    assert (report.num_prompt_tokens, report.num_output_tokens, report.num_failed) == (250, 3, 0)
    assert report.output_tokens_per_s == pytest.approx(3 / 0.302)


def test_a_closed_loop_keeps_its_concurrency():
    alone = predict(workload(6, "10", "5"), SETTINGS, COST, max_concurrency=1).report
    assert alone.ttft is not None and alone.ttft.max_ms == pytest.approx(20) and alone.ttft.mean_ms > 19
    assert alone.duration_s == pytest.approx(6 * (0.02 + 4 * 0.011), rel=0.01)
    together = predict(workload(6, "10", "5"), SETTINGS, COST).report
    assert together.duration_s == pytest.approx(0.07 + 4 * 0.016, rel=0.01)


def test_shared_prefixes_are_found_in_the_cache():
    load = workload(8, "90", "2", prefix_len=64, request_rate=2.0)
    replay = predict(load, SETTINGS, COST)
    assert replay.report.num_cached_tokens >= 7 * 64
    first, second = engine_requests(load.requests(ONE_TOKEN_A_WORD))[:2]
    assert first.prompt_token_ids[:64] == second.prompt_token_ids[:64] != first.prompt_token_ids[26:90]


def test_continuous_batching_and_paging_serve_more():
    load = workload(60, "lognormal:40,0.8", "lognormal:40,0.9", request_rate=50.0)
    small = EngineSettings(num_blocks=128, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=512)
    places = EngineSettings(
        num_blocks=128, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=512, is_contiguous=True
    )
    static = predict(load, small, COST, batching=StaticBatching(8))
    contiguous, paged = predict(load, places, COST), predict(load, small, COST)
    assert static.report.output_tokens_per_s < 0.8 * paged.report.output_tokens_per_s
    assert contiguous.report.output_tokens_per_s < 0.8 * paged.report.output_tokens_per_s
    assert static.replay.utilization < 0.5 < 0.6 < paged.replay.utilization
    assert paged.replay.kv_waste < 0.15 < 0.6 < contiguous.replay.kv_waste
    assert contiguous.replay.utilization <= 4 / 8  # as many as have a place
    table = render({"one": static, "two": paged}).splitlines()
    assert [line.split()[0] for line in table[2:]] == ["one", "two"]
    assert len({len(line) for line in table}) == 1


def test_the_worked_example_as_text():
    assert render_beside(worked_example(), max_chars=30) == PICTURE


def test_the_worked_example_as_svg():
    root = ElementTree.fromstring(draw(worked_example(), "steps & tokens"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text and text[0] in "ABCDEF"] == 2 * [
        "A 10",
        "B 40",
        "C 20",
        "D 80",
        "E 70",
        "F 60",
    ]
    assert texts[-1] == "steps & tokens"
    bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("rx")]
    assert max(float(bar.get("x", "0")) + float(bar.get("width", "0")) for bar in bars) < 860


def test_a_cost_model_is_kept_in_a_file(tmp_path: Path):
    write_cost_model(tmp_path / "cost.json", COST)
    assert read_cost_model(tmp_path / "cost.json") == COST


@pytest.mark.parametrize("text", ["", "[]", '{"fixed_s": 1, "sugar_s": 2}', '{"fixed_s": "x"}'])
def test_another_file_is_no_cost_model(tmp_path: Path, text):
    (tmp_path / "cost.json").write_text(text)
    with pytest.raises(ValueError, match=r"cost\.json is no cost model, an object of fixed_s, token_s"):
        read_cost_model(tmp_path / "cost.json")


def test_a_log_of_steps_is_read(tmp_path: Path):
    work = StepWork(num_tokens=3, num_sampled=1, num_pairs=9)
    path = tmp_path / "steps.jsonl"
    path.write_text(2 * (json.dumps(work._asdict() | {"seconds": 0.5}) + "\n"))
    assert read_steps(path) == [(work, 0.5), (work, 0.5)]
    assert FitQuality.of(CostModel(0.25, 0, 0, 0), read_steps(path)).error_of_sum == -0.5
    path.write_text(path.read_text() + '{"num_tokens": 3}\n')
    with pytest.raises(ValueError, match="line 3 is not what --step-log writes"):
        read_steps(path)


def test_what_a_request_takes_outside_of_steps_is_found_again():
    load = workload(10, "uniform:10,200", "5")
    told = predict(load, SETTINGS, replace(COST, request_s=0.03), max_concurrency=1).report
    assert told.ttft is not None
    measured = MeasuredLoad(load, 1, told.ttft.mean_ms)
    assert fit_request_s(COST, SETTINGS, [measured, measured]) == pytest.approx(0.03)
    assert fit_request_s(COST, SETTINGS, [measured._replace(mean_ttft_ms=1.0)]) == 0.0


def run_octavo(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys\nfrom octavo.cli import main\nsys.argv = {['octavo', *arguments]!r}\n"
    program += "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_command_compares_engines_that_are_not_there(tmp_path: Path):
    write_cost_model(tmp_path / "cost.json", COST)
    cost = ["--cost", str(tmp_path / "cost.json"), "--num-prompts", "20", "--input-len", "30", "--output-len", "9"]
    run = run_octavo("simulate", *cost, "--policy", "static,continuous", "--kv", "paged,contiguous")
    names = [line[:24].strip() for line in run.stdout.splitlines()[2:]]
    assert names == ["static, paged", "static, contiguous", "continuous, paged", "continuous, contiguous"]
    modules = set(run.stderr.split())
    assert "octavo.core.scheduler" in modules and not {"numpy", "octavo.engine"} & modules

    run = run_octavo("simulate", *cost, "--values", "1,2,4")
    assert "The knee is at" in run.stdout and run.returncode == 0


def test_the_command_fits_the_costs(tmp_path: Path):
    steps, result, cost = (tmp_path / name for name in ("steps.jsonl", "result.jsonl", "cost.json"))
    works = [StepWork(num_tokens, num_tokens % 3, num_tokens**2) for num_tokens in range(1, 20)]
    steps.write_text("".join(json.dumps(work._asdict() | {"seconds": COST.seconds(work)}) + "\n" for work in works))
    asked = WorkloadOptions(num_prompts=3, input_len="19", output_len="2", max_concurrency=1)
    result.write_text(json.dumps({"settings": asdict(asked), "report": {"ttft": {"mean_ms": 10 + 19 + 7}}}))
    fit = ["simulate", "--fit", str(steps), "--cost", str(cost)]
    assert run_octavo(*fit).returncode == 0 and read_cost_model(cost).request_s == 0.0
    assert run_octavo(*fit, "--fit-result", str(result)).returncode == 0
    assert asdict(read_cost_model(cost)) == pytest.approx(asdict(replace(COST, request_s=0.007)), abs=1e-9)
    for text, message in (("", "holds no result"), ("{}", "line 1 is not what --save-result writes")):
        result.write_text(text)
        assert message in run_octavo(*fit, "--fit-result", str(result)).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-prompts", "3"], "--step-log steps.jsonl"),
        (["--policy", "dynamic"], "policy is 'dynamic'"),
        (["--values", "4,2"], "growing order"),
        (["--input-len", "5000"], "maximum context length is 2048"),
    ],
)
def test_what_cannot_be_simulated_is_said(tmp_path: Path, arguments, message):
    write_cost_model(tmp_path / "cost.json", COST)
    cost = [] if "--num-prompts" in arguments else ["--cost", str(tmp_path / "cost.json")]
    run = run_octavo("simulate", *cost, *arguments)
    assert run.returncode == 1 and message in run.stderr and "Traceback" not in run.stderr


def test_the_timeline_needs_nothing(tmp_path: Path):
    run = run_octavo("simulate", "--timeline", "--svg", str(tmp_path / "timeline.svg"))
    assert "88% of the slots used" in run.stdout and (tmp_path / "timeline.svg").read_text().startswith("<svg")


def test_a_prediction_has_the_figures_of_a_measurement():
    made: Prediction = predict(workload(3, "10", "5"), SETTINGS, COST, objective_ms={"ttft": 1.0})
    assert made.report.goodput_requests_per_s == 0.0
    assert "time to first token" in made.report.render()


def test_the_picture_in_the_documents_is_what_the_command_draws(tmp_path: Path):
    run_octavo("simulate", "--timeline", "--svg", str(tmp_path / "timeline.svg"))
    drawn = Path(__file__).parents[2] / "docs" / "static_and_continuous.svg"
    assert drawn.read_text() == (tmp_path / "timeline.svg").read_text()
