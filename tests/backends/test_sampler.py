"""sample: which token is chosen, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, SamplingBatch, philox_uniform
from tests.backends.sampling_batches import GREEDY, ban, one_row, sample, sampling


def oracle(logits: np.ndarray, batch: SamplingBatch, i: int) -> tuple[int, float]:
    """The token of row i, straight from the definition, and how near a rounding error would change it."""
    row = logits[i, : batch.vocab_size].astype(np.float64)
    banned = set(batch.banned.ids[batch.banned.of_row(i)].tolist())
    order = sorted((j for j in range(len(row)) if j not in banned), key=lambda j: (-row[j], j))
    p = {j: np.exp((row[j] - row[order[0]]) / batch.temperature[i]) for j in order}
    nearest = min([abs(p[j] - batch.min_p[i]) for j in order if batch.min_p[i] > 0], default=1.0)
    kept = [j for j in order if p[j] >= batch.min_p[i]]
    if batch.top_k[i] > 0:
        kept = kept[: batch.top_k[i]]
    shares = np.cumsum([p[j] for j in kept]) / sum(p[j] for j in kept)
    if batch.top_p[i] < 1:
        nearest = min(nearest, np.abs(shares - batch.top_p[i]).min())
        kept = kept[: 1 + int(np.argmax(shares >= batch.top_p[i]))]
    kept.sort()
    running = np.cumsum([p[j] for j in kept]) / sum(p[j] for j in kept)
    u = philox_uniform(int(batch.seed[i]), int(batch.output_index[i]))
    return kept[int(np.argmax(running > u))], min(nearest, np.abs(running - u).min())


@settings(max_examples=60, deadline=None)
@given(
    vocab_size=st.integers(1, 300),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 7, 60, 1000]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_choice_is_that_of_the_definition(backend, vocab_size, spread, temperature, top_k, top_p, min_p, seed):
    rng = np.random.default_rng(seed)
    logits = spread * rng.standard_normal((8, vocab_size + 3), np.float32)
    logits[:, vocab_size:] = np.nan  # padding of the vocabulary
    batch = sampling(
        8,
        vocab_size,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=rng.integers(0, 2**64, 8, dtype=np.uint64),
        output_index=rng.integers(0, 2**40, 8, dtype=np.uint64),
    )
    batch = ban(batch, [rng.integers(0, vocab_size, n).tolist() if n < vocab_size else [] for n in range(8)])
    token_ids = sample(backend, logits, batch).token_ids
    for i in range(8):
        expected, nearest = oracle(logits, batch, i)
        assert token_ids[i] == expected or nearest < 1e-5


def test_a_large_vocabulary(backend):
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((12, 20_000), np.float32)
    filters = dict(top_k=[0, 40] * 6, top_p=[1.0, 1.0, 0.9, 0.9] * 3, min_p=[0.0] * 8 + [0.02] * 4)
    batch = sampling(12, 20_000, **filters)
    token_ids = sample(backend, logits, batch).token_ids
    choices = [oracle(logits, batch, i) for i in range(12)]
    certain = [i for i, (_, nearest) in enumerate(choices) if nearest > 1e-6]
    assert len(certain) >= 8
    assert [token_ids[i] for i in certain] == [choices[i][0] for i in certain]


def test_greedy_takes_the_largest_and_of_equals_the_smallest_id(backend):
    logits = np.zeros((3, 50), np.float32)
    logits[0, [7, 30, 49]] = 2.0
    logits[1, 49] = 1.0
    batch = sampling(3, 50, temperature=[GREEDY, 9e-6, GREEDY])
    assert sample(backend, logits, batch).token_ids.tolist() == [7, 49, 0]


def test_equal_logits_are_cut_by_id(backend):
    logits = np.zeros((200, 40), np.float32)
    kept = set(sample(backend, logits, sampling(200, 40, top_k=5)).token_ids.tolist())
    assert kept == {0, 1, 2, 3, 4}
    kept = set(sample(backend, logits, sampling(200, 40, top_p=0.199)).token_ids.tolist())
    assert kept == set(range(8))  # eight fortieths are the first to reach it


def test_the_draw_is_philox_over_the_ids_in_order(backend):
    """Of 1024 equal logits a draw takes the one whose 1024th it falls into."""
    seeds = np.array([0, 1, 2**32, 2**63 + 5, 2**64 - 1], np.uint64)
    for output_index in (0, 1, 2**33):
        batch = sampling(5, 1024, seed=seeds, output_index=output_index)
        token_ids = sample(backend, np.zeros((5, 1024), np.float32), batch).token_ids
        assert token_ids.tolist() == [int(1024 * philox_uniform(int(seed), output_index)) for seed in seeds]


def test_philox_is_philox():
    """The first known answer of Random123's kat_vectors for philox4x32 10: words 6627e8d5 e169c58d ..."""
    assert philox_uniform(0, 0) == (0xE169C58D6627E8D5 >> 11) * 2.0**-53


def test_draws_follow_the_distribution(backend):
    logits = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1.5, 0.2], np.float32)
    batch = sampling(4000, 8, seed=np.arange(4000) // 50, output_index=np.arange(4000) % 50)
    counts = np.bincount(sample(backend, np.tile(logits, (4000, 1)), batch).token_ids, minlength=8)
    expected = 4000 * np.exp(logits) / np.exp(logits).sum()
    assert ((counts - expected) ** 2 / expected).sum() < 24.3  # chi-square with 7 degrees of freedom, 1 in 1000


def test_the_row_and_its_neighbours_do_not_matter(backend):
    rng = np.random.default_rng(1)
    logits = 2 * rng.standard_normal((6, 500), np.float32)
    batch = sampling(6, 500, top_k=[0, 3, 0, 20, 0, 0], top_p=[1, 1, 0.7, 0.9, 1, 1], num_logprobs=[-1, 0, 3, 5, 2, 5])
    together = sample(backend, logits, batch)
    for i in range(6):
        alone = sample(backend, logits[i : i + 1], one_row(batch, i))
        assert alone.token_ids[0] == together.token_ids[i]
        if batch.num_logprobs[i] >= 0:
            n = batch.num_logprobs[i]
            assert alone.logprob[0] == together.logprob[i]
            assert np.array_equal(alone.top_ids[0, :n], together.top_ids[i, :n])
            assert np.array_equal(alone.top_logprobs[0, :n], together.top_logprobs[i, :n])


def test_log_probabilities_are_raw(backend):
    """Without temperature, bans and filters; over ids below vocab_size alone."""
    rng = np.random.default_rng(2)
    logits = 4 * rng.standard_normal((5, 130), np.float32)
    logits[:, 100:] = 50.0
    logits[4, :20] = 3.0
    batch = sampling(5, 100, temperature=[0, 0.5, 1, 2, 1], top_k=[0, 3, 3, 0, 0], num_logprobs=[0, 1, 5, 20, 100])
    batch = ban(batch, [[int(np.argmax(logits[0, :100]))], [], [1, 2, 3], [], []])
    sampled = sample(backend, logits, batch)
    assert sampled.top_ids.shape == sampled.top_logprobs.shape == (5, 100)
    for i, n in enumerate(batch.num_logprobs):
        row = logits[i, :100].astype(np.float64)
        expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
        token_id = sampled.token_ids[i]
        np.testing.assert_allclose(sampled.logprob[i], expected[token_id], atol=1e-5)
        assert sampled.rank[i] == 1 + (row > row[token_id]).sum()
        order = sorted(range(100), key=lambda j: (-row[j], j))[:n]
        assert sampled.top_ids[i, :n].tolist() == order
        np.testing.assert_allclose(sampled.top_logprobs[i, :n], expected[order], atol=1e-5)
    assert sampled.rank[0] == 2  # its best token was banned, and still counts


@pytest.mark.parametrize("temperature", [GREEDY, 1.0])
def test_what_cannot_be_chosen_gives_no_token(backend, temperature):
    logits = np.zeros((7, 40), np.float32)
    logits[0, 3] = np.nan
    logits[1, 37] = np.nan
    logits[2] = -np.inf
    logits[3, 5] = np.inf
    logits[5, :37] = -np.inf
    logits[6, 38] = np.nan  # above the vocabulary
    batch = sampling(7, 38, temperature=temperature, num_logprobs=2)
    batch = ban(batch, [[], [], [], [5], list(range(38)), [], []])
    token_ids = sample(backend, logits, batch).token_ids
    assert token_ids[:5].tolist() == [NOT_FINITE] * 4 + [NOTHING_LEFT]
    assert token_ids[5] == 37
    assert 0 <= token_ids[6] < 38


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_impossible_tokens_are_never_drawn(backend, filters):
    logits = np.full((300, 64), -np.inf, np.float32)
    logits[:, [5, 6]] = [1.0, 1.1]
    batch = ban(sampling(300, 64, **filters), [[]] * 299 + [[5]])
    token_ids = sample(backend, logits, batch).token_ids
    assert set(token_ids[:299].tolist()) == {5, 6}
    assert token_ids[299] == 6
