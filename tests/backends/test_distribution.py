"""sample: whatever the parameters, draws follow the exact distribution (chi-square, p > 0.001)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from octavo.backends.ops import Backend, SamplingBatch
from tests.backends.conftest import BACKEND_NAMES, make_backend
from tests.backends.sampling_batches import add_bias, allow, ban, count, repeated, sample, sampling

NUM_DRAWS = 20_000
LOGITS = np.array([1.2, 0.3, -0.9, 2.1, 0.3, -2.0, 1.7, 0.0, -0.4, 0.9], np.float32)
VOCAB_SIZE = len(LOGITS)
BIAS = {5: 3.0, 3: -1.5, 8: 0.7}
OUTPUT_COUNTS = {0: 0, 2: 0, 3: 2, 6: 1, 9: 4}
PENALTIES = {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.6}

# Every value that chi-square exceeds once in a thousand, by degrees of freedom (NIST handbook, 1.3.6.7.4).
CRITICAL = [0.0, 10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.125, 27.877]

FACTORS = {
    "temperature": (0.7, 1.5),
    "top_k": (0, 5),
    "top_p": (1.0, 0.85),
    "min_p": (0.0, 0.06),
    "is_penalized": (False, True),
    "is_biased": (False, True),
}
GRID = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*FACTORS.values())]
FEW = [GRID[i] for i in (0b000000, 0b010101, 0b101010, 0b111111)]  # for the reference, which takes its time


def distribution(point: dict[str, Any]) -> np.ndarray:
    """The probability of each id, in float64 and by sorting."""
    x = LOGITS.astype(np.float64)
    if point["is_biased"]:
        for token_id, bias in BIAS.items():
            x[token_id] += bias
    if point["is_penalized"]:
        for token_id, number in OUTPUT_COUNTS.items():
            x[token_id] *= PENALTIES["repetition_penalty"] ** (-1 if x[token_id] > 0 else 1)
            x[token_id] -= PENALTIES["frequency_penalty"] * number + PENALTIES["presence_penalty"] * (number > 0)
    p = np.exp(x / point["temperature"])
    p /= p.sum()
    p[p < point["min_p"] * p.max()] = 0.0
    order = np.argsort(-x, kind="stable")
    if point["top_k"] > 0:
        p[order[point["top_k"] :]] = 0.0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= point["top_p"]]] = 0.0
    return p / p.sum()


def batch_at(point: dict[str, Any]) -> SamplingBatch:
    """One row with the parameters of a point of the grid."""
    filters = {name: point[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    batch = sampling(1, VOCAB_SIZE, **filters, **(PENALTIES if point["is_penalized"] else {}))
    if point["is_biased"]:
        batch = add_bias(batch, [BIAS])
    return count(batch, [OUTPUT_COUNTS]) if point["is_penalized"] else batch


def draws(backend: Backend, row: SamplingBatch, **columns: np.ndarray) -> np.ndarray:
    """How often each id comes out of many rows like this one. Unless `columns` say otherwise, their seeds differ."""
    logits = np.tile(LOGITS, (NUM_DRAWS, 1))
    token_ids = sample(backend, logits, repeated(row, NUM_DRAWS, **columns)).token_ids
    return np.bincount(token_ids, minlength=VOCAB_SIZE)


def assert_follows(counts: np.ndarray, p: np.ndarray) -> None:
    is_possible = p > 0
    assert counts[~is_possible].sum() == 0
    expected = NUM_DRAWS * p[is_possible]
    assert expected.min() > 5  # or chi-square would not apply
    statistic = ((counts[is_possible] - expected) ** 2 / expected).sum()
    degrees = is_possible.sum() - 1
    assert statistic <= CRITICAL[degrees], (statistic, degrees)


@pytest.mark.parametrize("name", BACKEND_NAMES)
def test_every_combination(name):
    backend = make_backend(name, num_threads=1)
    for point in FEW if name == "reference" else GRID:
        assert_follows(draws(backend, batch_at(point)), distribution(point))


def test_the_grid_holds_what_it_should():
    assert {(distribution(point) > 0).sum() for point in GRID} >= {3, 4, 5, 10}
    for name, values in FACTORS.items():
        assert len(values) == len({point[name] for point in FEW})
        others = [{**point, name: None} for point in GRID]
        changed = [distribution(point).tobytes() for point in GRID]
        pairs = [(i, j) for i, j in itertools.combinations(range(len(GRID)), 2) if others[i] == others[j]]
        assert any(changed[i] != changed[j] for i, j in pairs), name


def test_later_tokens_of_the_same_seeds(backend):
    point = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.0, "is_penalized": False, "is_biased": False}
    output_index = np.full(NUM_DRAWS, 2)
    assert_follows(draws(backend, batch_at(point), output_index=output_index), distribution(point))


def test_one_seed_draws_anew_for_each_token(backend):
    columns = {"seed": np.full(NUM_DRAWS, 42), "output_index": np.arange(NUM_DRAWS)}
    p = np.exp(LOGITS.astype(np.float64))
    assert_follows(draws(backend, sampling(1, VOCAB_SIZE), **columns), p / p.sum())


def test_allowed_and_banned_share_what_is_left(backend):
    batch = ban(allow(sampling(1, VOCAB_SIZE), [[0, 2, 3, 7, 9]]), [[3]])
    p = np.where(np.isin(np.arange(VOCAB_SIZE), (0, 2, 7, 9)), np.exp(LOGITS.astype(np.float64)), 0.0)
    assert_follows(draws(backend, batch), p / p.sum())
