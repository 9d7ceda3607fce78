"""What steps cost on a machine: read from the log of an engine, fitted, kept in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from octavo.bench.report import percentile
from octavo.core.step_work import StepWork
from octavo.sim.cost_model import CostModel

MeasuredStep = tuple[StepWork, float]  # and its seconds


def read_steps(path: Path) -> list[MeasuredStep]:
    """The steps that `--step-log` wrote down, and their seconds. Raises ValueError for a file of another kind."""
    steps = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            step = json.loads(line)
            steps.append((StepWork(*(int(step[name]) for name in StepWork._fields)), float(step["seconds"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number} is not what --step-log writes: {error!r}") from None
    return steps


def read_cost_model(path: Path) -> CostModel:
    """The cost model that `octavo simulate --fit` wrote. Raises ValueError for a file of another kind."""
    try:
        return CostModel(**{name: float(cost) for name, cost in json.loads(path.read_text()).items()})
    except (AttributeError, TypeError, ValueError) as error:
        names = ", ".join(asdict(CostModel()))
        raise ValueError(f"{path} is no cost model, an object of {names}: {error}") from None


def write_cost_model(path: Path, cost_model: CostModel) -> None:
    """Keep a cost model in a file."""
    path.write_text(json.dumps(asdict(cost_model)) + "\n")


class FitQuality(NamedTuple):
    """How well a cost model tells the steps that it was fitted to. Errors are relative."""

    num_steps: int
    median_error: float
    p95_error: float
    error_of_sum: float

    @classmethod
    def of(cls, cost_model: CostModel, steps: Sequence[MeasuredStep]) -> FitQuality:
        """The quality of a fit."""
        errors = sorted(abs(cost_model.seconds(work) / seconds - 1) for work, seconds in steps)
        predicted_s = sum(cost_model.seconds(work) for work, _ in steps)
        total_s = sum(seconds for _, seconds in steps)
        return cls(len(steps), percentile(errors, 50), percentile(errors, 95), predicted_s / total_s - 1)

    def render(self) -> str:
        """A line of text."""
        return (
            f"{self.num_steps} steps; relative error: median {self.median_error:.1%}, p95 {self.p95_error:.1%}, "
            f"of their sum {self.error_of_sum:+.1%}"
        )
