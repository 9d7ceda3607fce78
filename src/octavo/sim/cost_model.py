"""CostModel: how long a step takes, from what there is to do in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from octavo.core.messages import SchedulerOutput
from octavo.core.step_work import StepWork

Matrix = list[list[float]]
SINGULAR = 1e-9  # a pivot below: two parts cannot be told apart, or one is never there


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a step: a sum of parts, each in proportion to one number of StepWork."""

    fixed_s: float = 0.005  # weights are read once, however many tokens there are
    token_s: float = 0.0002
    sampled_s: float = 0.0  # the head's product for a row, the choice of its token, its way to the client
    pair_s: float = 0.0000002  # a query and a key

    def step_s(self, scheduled: SchedulerOutput) -> float:
        """Seconds the step takes."""
        return self.seconds(StepWork.of(scheduled))

    def seconds(self, work: StepWork) -> float:
        """Seconds that so much work takes."""
        tokens_s = self.token_s * work.num_tokens + self.sampled_s * work.num_sampled
        return self.fixed_s + tokens_s + self.pair_s * work.num_pairs

    @classmethod
    def fit(cls, steps: Sequence[tuple[StepWork, float]]) -> CostModel:
        """The model whose relative errors over these measured steps, (work, seconds), are least in the square.

        No part is negative: of all choices of parts whose best fit has none, the best one counts. Raises ValueError
        where there are too few steps.
        """
        rows = [[amount / seconds for amount in (1, *work)] for work, seconds in steps if seconds > 0]
        num_parts = len(cls.__slots__)
        if len(rows) < num_parts:
            raise ValueError(f"{len(rows)} steps were measured; a fit of {num_parts} parts needs more")
        units = [math.sqrt(sum(row[i] ** 2 for row in rows)) or 1.0 for i in range(num_parts)]  # so that all are alike
        rows = [[amount / unit for amount, unit in zip(row, units, strict=True)] for row in rows]
        products = [[sum(row[i] * row[j] for row in rows) for j in range(num_parts)] for i in range(num_parts)]
        targets = [sum(row[i] for row in rows) for i in range(num_parts)]  # the sum of a row shall be 1
        best, best_gain = [0.0] * num_parts, 0.0
        for costs in _candidates(products, targets):
            gain = sum(cost * target for cost, target in zip(costs, targets, strict=True))  # of squares, at an optimum
            if min(costs) >= 0 and gain > best_gain:
                best, best_gain = costs, gain
        return cls(*(cost / unit for cost, unit in zip(best, units, strict=True)))


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
