"""The ledger run itself: it finds nothing, reaches everything, repeats itself, and does find a planted fault."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from octavo.core.block import Block
from octavo.core.messages import RequestOutput
from octavo.core.prefix_index import PrefixIndex
from octavo.core.scheduler import Scheduler
from octavo.sim import ledger
from octavo.sim.checked_engine import CheckedEngine
from octavo.sim.coverage import REQUIRED_SHARE, Coverage
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.trial import Trial, TrialError
from tests.core.engine_requests import make_request


def test_100_seeds_find_nothing_and_reach_everything():
    coverage = Coverage()
    failures = []
    for outcome in ledger.run_seeds(range(100), num_steps=200, num_jobs=2):
        coverage.add(outcome.coverage)
        failures.append(outcome.failure)
    assert [failure for failure in failures if failure] == []
    assert coverage.num_seeds == 100
    assert coverage.missing() == [], str(coverage)


def trace_digest(seed: int) -> str:
    digest = hashlib.blake2b()
    Trial(seed, 100, lambda scheduled, result: digest.update(repr((scheduled, result)).encode())).run()
    return digest.hexdigest()


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_seed_repeats_itself_to_the_last_decision(seed):
    assert trace_digest(seed) == trace_digest(seed)
    assert trace_digest(seed) != trace_digest(seed + 1)


def test_a_seed_repeats_itself_in_another_process():
    command = [sys.executable, "-m", "octavo.sim.ledger", "--seed", "3", "--steps", "30"]
    outputs = {
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert b"nothing found" in outputs.pop()


def forget_to_evict(self: PrefixIndex, block: Block) -> None:
    block.key, block.parent, block.token_ids, block.node_id = None, "", (), 0


def test_a_planted_fault_is_reported_with_the_command_that_replays_it(monkeypatch, capsys):
    monkeypatch.setattr(PrefixIndex, "remove", forget_to_evict)
    assert ledger.run(range(8), num_steps=100, num_jobs=1) == 1
    report = capsys.readouterr().out
    failed_seed = int(report.split("seed ", 1)[1].split(",")[0])
    assert f"python -m octavo.sim.ledger --seed {failed_seed} --steps 100" in report
    assert ledger.replay(failed_seed, 100) == 1
    replayed = capsys.readouterr().out
    assert report.splitlines()[0] in replayed
    assert "ScheduledRow" in replayed


def test_a_run_that_reaches_too_little_fails(monkeypatch, capsys):
    monkeypatch.setitem(REQUIRED_SHARE, "preempted three times", 1.0)
    assert ledger.run(range(2), num_steps=5, num_jobs=1) == 1
    assert "reached by too few seeds: preempted three times" in capsys.readouterr().out


def test_replay_of_a_good_seed_prints_its_steps(capsys):
    assert ledger.replay(3, 10) == 0
    assert "nothing found" in capsys.readouterr().out


def engine_with_work() -> CheckedEngine:
    engine = CheckedEngine(EngineSettings(num_blocks=8))
    engine.add(make_request("r", [1, 2, 3], max_tokens=10))
    return engine


def test_an_engine_that_stands_still_is_noticed(monkeypatch):
    monkeypatch.setattr(Scheduler, "_admit", lambda self, request: False)
    with pytest.raises(AssertionError, match="nobody runs in step 1"):
        engine_with_work().drain()


def test_an_engine_that_runs_in_circles_comes_to_the_bound(monkeypatch):
    def preempt_all(self: Scheduler, scheduled: object, output: object) -> list[RequestOutput]:
        for request in list(self.running):
            self._preempt(request)
            request.num_preemptions = 0
        return []

    monkeypatch.setattr(Scheduler, "update", preempt_all)
    with pytest.raises(AssertionError, match="not empty at step 49"):  # 4 lives of 12 tokens, and one for aborts
        engine_with_work().drain()


def test_a_trial_wraps_whatever_breaks(monkeypatch):
    monkeypatch.setattr(Scheduler, "schedule", lambda self, now_s, budget: 1 / 0)
    with pytest.raises(TrialError, match="seed 11, step 1: ZeroDivisionError"):
        Trial(11, 10).run()
