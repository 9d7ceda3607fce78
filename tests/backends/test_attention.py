"""attend and write_kv: right, and the same bits however a sequence is served."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.conftest import make_backend
from tests.backends.paged_sequences import (
    Chunk,
    Heads,
    attend,
    attend_in_chunks,
    expected_attention,
    fill_with_nan,
    make_sequences,
)

HEADS = Heads(num_heads=3, num_kv_heads=1, head_dim=16)


def poisoned_kv(backend, shape):
    kv = backend.allocate_kv(shape)
    fill_with_nan(backend, kv, shape)
    return kv


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    head_dim=st.sampled_from([8, 16, 24, 40, 64, 80, 128, 256]),
    block_size=st.sampled_from([16, 32]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_the_softmax_over_the_sequence_so_far(backend, lengths, num_kv_heads, group, head_dim, block_size, seed):
    heads = Heads(num_kv_heads * group, num_kv_heads, head_dim)
    sequences = make_sequences(np.random.default_rng(seed), heads, lengths, 30, block_size)
    kv = poisoned_kv(backend, heads.kv_shape(30, block_size))
    chunks = [Chunk(sequence, 0, len(sequence.q)) for sequence in sequences]
    for sequence, out in zip(sequences, attend(backend, kv, chunks, heads.scale, block_size), strict=True):
        np.testing.assert_allclose(out, expected_attention(heads, sequence), rtol=1e-5, atol=3e-6)


def test_a_long_sequence(backend):
    (sequence,) = make_sequences(np.random.default_rng(0), HEADS, [1300], 100)
    kv = poisoned_kv(backend, HEADS.kv_shape(100))
    (out,) = attend(backend, kv, [Chunk(sequence, 0, 1300)], HEADS.scale)
    np.testing.assert_allclose(out, expected_attention(HEADS, sequence), rtol=1e-5, atol=3e-6)


def test_scores_far_apart(backend):
    """The largest score may come first, last or between: nothing overflows, nothing is lost."""
    rng = np.random.default_rng(1)
    for place in (0, 40, 600, 699):
        (sequence,) = make_sequences(rng, HEADS, [700], 50)
        sequence.k[place] = 60 * sequence.q[-1, :16]
        kv = poisoned_kv(backend, HEADS.kv_shape(50))
        (out,) = attend(backend, kv, [Chunk(sequence, 0, 700)], HEADS.scale)
        np.testing.assert_allclose(out, expected_attention(HEADS, sequence), rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("length", [100, 1100])
def test_chunks_of_any_size_give_the_same_bits(backend, length):
    (sequence,) = make_sequences(np.random.default_rng(2), HEADS, [length], 80)
    whole = Chunk(sequence, 0, length)
    (expected,) = attend(backend, poisoned_kv(backend, HEADS.kv_shape(80)), [whole], HEADS.scale)
    for size in (1, 7, 16, 512):
        kv = poisoned_kv(backend, HEADS.kv_shape(80))
        assert np.array_equal(attend_in_chunks(backend, kv, whole, size, HEADS.scale), expected), size


@pytest.mark.parametrize("heads", [HEADS, Heads(8, 4, 64), Heads(50, 1, 8)])
def test_neighbours_change_no_bit(backend, heads):
    rng = np.random.default_rng(3)
    sequences = make_sequences(rng, heads, [1, 33, 530, 90], 60)
    begins = [0, 32, 500, 0]  # a prompt of one token, a decode, the chunk of a long prompt, a whole prompt
    chunks = [Chunk(sequence, begin, len(sequence.q)) for sequence, begin in zip(sequences, begins, strict=True)]
    kv = poisoned_kv(backend, heads.kv_shape(60))
    for chunk in chunks:
        if chunk.begin > 0:
            attend(backend, kv, [Chunk(chunk.sequence, 0, chunk.begin)], heads.scale)
    together = attend(backend, kv, chunks, heads.scale)
    alone = [attend(backend, kv, [chunk], heads.scale)[0] for chunk in chunks]
    backwards = attend(backend, kv, chunks[::-1], heads.scale)[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)


def test_block_numbers_and_block_size_change_no_bit(backend):
    results = []
    for block_size, block_seed in [(16, 1), (16, 2), (32, 3), (64, 4)]:
        (sequence,) = make_sequences(np.random.default_rng(4), HEADS, [600], 80, block_size)
        np.random.default_rng(block_seed).shuffle(sequence.block_ids)
        kv = poisoned_kv(backend, HEADS.kv_shape(80, block_size))
        results.append(attend(backend, kv, [Chunk(sequence, 0, 600)], HEADS.scale, block_size)[0])
    for result in results[1:]:
        assert np.array_equal(result, results[0])


def test_threads_change_no_bit(native_name):
    heads = Heads(6, 2, 32)
    sequences = make_sequences(np.random.default_rng(5), heads, [2000, 60], 150)
    results = []
    for num_threads in (1, 2, 3):
        backend = make_backend(native_name, num_threads)
        kv = poisoned_kv(backend, heads.kv_shape(150))
        prompts = attend(backend, kv, [Chunk(s, 0, len(s.q) - 1) for s in sequences], heads.scale)
        decodes = attend(backend, kv, [Chunk(s, len(s.q) - 1, len(s.q)) for s in sequences], heads.scale)
        results.append(np.concatenate([*prompts, *decodes]))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_a_later_token_of_the_step_is_not_seen(backend):
    """The keys and values of a whole chunk are written before any of its queries attends."""
    rng = np.random.default_rng(6)
    (sequence,) = make_sequences(rng, HEADS, [70], 10)
    kv = poisoned_kv(backend, HEADS.kv_shape(10))
    (before,) = attend(backend, kv, [Chunk(sequence, 0, 70)], HEADS.scale)
    for x in (sequence.q, sequence.k, sequence.v):
        x[40:] = np.nan
    (after,) = attend(backend, kv, [Chunk(sequence, 0, 70)], HEADS.scale)
    assert np.array_equal(before[:40], after[:40])
    assert np.isnan(after[40:]).all()
