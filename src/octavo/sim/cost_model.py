"""CostModel: how long a step takes, from what there is to do in it, and what a request takes besides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from octavo.core.messages import SchedulerOutput
from octavo.core.step_work import StepWork

Matrix = list[list[float]]
NUM_STEP_PARTS = 1 + len(StepWork._fields)
MIN_STEP_S = 1e-6  # for a weight, where the parts that there are tell no time of a step
NUM_FITS = 10  # after which the weights change by less than a thousandth
SINGULAR = 1e-9  # a pivot below: two parts cannot be told apart, or one is never there


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a step: a sum of parts, each in proportion to one number of StepWork. And those outside of steps."""

    fixed_s: float = 0.005  # weights are read once, however many tokens there are
    token_s: float = 0.0002
    sampled_s: float = 0.0  # the head's product for a row, the choice of its token, its way to the client
    pair_s: float = 0.0000002  # a query and a key
    request_s: float = 0.0  # of a request, on its way from the client to the engine and back

    def step_s(self, scheduled: SchedulerOutput) -> float:
        """Seconds the step takes."""
        return self.seconds(StepWork.of(scheduled))

    def seconds(self, work: StepWork) -> float:
        """Seconds that so much work takes."""
        tokens_s = self.token_s * work.num_tokens + self.sampled_s * work.num_sampled
        return self.fixed_s + tokens_s + self.pair_s * work.num_pairs

    @classmethod
    def fit(cls, steps: Sequence[tuple[StepWork, float]]) -> CostModel:
        """The parts of a step by these measured ones, (work, seconds); `request_s` no step tells.

        Least squares, where the variance of a step's time is taken to grow with its mean: so the fitted times of all
        steps together are the measured ones, however much longer some took than others of the same work. No part is
        negative: of all choices of parts whose best fit has none, the best one counts. Raises ValueError where there
        are too few steps.
        """
        rows = [(1, *work) for work, seconds in steps if seconds > 0]
        times_s = [seconds for _, seconds in steps if seconds > 0]
        if len(rows) < NUM_STEP_PARTS:
            raise ValueError(f"{len(rows)} steps were measured; a fit of {NUM_STEP_PARTS} parts needs more")
        means_s = times_s  # of which the weights are made: at first as measured, then as fitted
        for _ in range(NUM_FITS):
            parts = _weighted_fit(rows, times_s, means_s)
            fitted_s = (sum(part * amount for part, amount in zip(parts, row, strict=True)) for row in rows)
            means_s = [max(MIN_STEP_S, mean_s) for mean_s in fitted_s]
        return cls(*parts)


def _weighted_fit(rows: Sequence[Sequence[float]], times_s: list[float], means_s: list[float]) -> list[float]:
    """The parts, none negative, with the least sum of (time - sum of parts x amounts)^2 / mean over the rows."""
    weights = [1 / mean_s for mean_s in means_s]
    columns = list(zip(*rows, strict=True))
    units = [math.sqrt(sum(w * a * a for w, a in zip(weights, column, strict=True))) or 1.0 for column in columns]
    scaled = [[amount / unit for amount in column] for column, unit in zip(columns, units, strict=True)]  # all alike
    products = [[_dot(weights, one, other) for other in scaled] for one in scaled]
    targets = [_dot(weights, column, times_s) for column in scaled]
    best, best_gain = [0.0] * len(units), 0.0
    for costs in _candidates(products, targets):
        gain = sum(cost * target for cost, target in zip(costs, targets, strict=True))  # of squares, at an optimum
        if min(costs) >= 0 and gain > best_gain:
            best, best_gain = costs, gain
    return [cost / unit for cost, unit in zip(best, units, strict=True)]


def _dot(weights: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float:
    return sum(w * a * b for w, a, b in zip(weights, one, other, strict=True))


def _candidates(products: Matrix, targets: list[float]) -> Iterator[list[float]]:
    """The best costs for each choice of parts, zero for the others."""
    for size in range(1, len(targets) + 1):
        for chosen in combinations(range(len(targets)), size):
            solution = _solve([[products[i][j] for j in chosen] for i in chosen], [targets[i] for i in chosen])
            if solution is not None:
                costs = [0.0] * len(targets)
                for part, cost in zip(chosen, solution, strict=True):
                    costs[part] = cost
                yield costs


def _solve(matrix: Matrix, vector: list[float]) -> list[float] | None:
    """x with matrix x = vector, by elimination with pivots; None where no x, or more than one, solves it."""
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for column in range(len(rows)):
        pivot = max(range(column, len(rows)), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) < SINGULAR:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for i in range(len(rows)):
            if i != column:
                factor = rows[i][column] / rows[column][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[column], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]
