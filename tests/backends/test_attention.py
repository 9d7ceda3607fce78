"""attend and write_kv: right, and the same bits however a sequence is served."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.ops import AttentionParams
from tests.backends.attention_kinds import DTYPES, KINDS, AttentionKind
from tests.backends.conftest import make_backend
from tests.backends.paged_sequences import Chunk, Heads, attend, attend_in_chunks, make_sequences
from tests.backends.stored_tensors import stored

HEADS = Heads(num_heads=3, num_kv_heads=1, head_dim=16)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> AttentionKind:
    """Each of the kinds in turn."""
    return KINDS[request.param]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    head_dim=st.sampled_from([8, 16, 24, 40, 64, 80, 128, 256]),
    block_size=st.sampled_from([16, 32]),
    kind=st.builds(
        AttentionKind,
        dtype=st.sampled_from(DTYPES),
        window=st.none() | st.integers(1, 100),
        soft_cap=st.none() | st.floats(0.5, 50, width=32),
        has_sinks=st.booleans(),
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_its_formula(backend, lengths, num_kv_heads, group, head_dim, block_size, kind, seed):
    heads = Heads(num_kv_heads * group, num_kv_heads, head_dim)
    sequences = make_sequences(np.random.default_rng(seed), heads, lengths, 30, block_size)
    kv = kind.poisoned_kv(backend, heads, 30, block_size)
    chunks = [Chunk(sequence, 0, len(sequence.q)) for sequence in sequences]
    outs = attend(backend, kv, chunks, kind.params(backend, heads), block_size)
    for sequence, out in zip(sequences, outs, strict=True):
        np.testing.assert_allclose(out, kind.expected(backend, heads, sequence), rtol=1e-5, atol=4e-6)


def test_a_long_sequence(backend, kind):
    (sequence,) = make_sequences(np.random.default_rng(0), HEADS, [1300], 100)
    kv = kind.poisoned_kv(backend, HEADS, 100)
    (out,) = attend(backend, kv, [Chunk(sequence, 0, 1300)], kind.params(backend, HEADS))
    np.testing.assert_allclose(out, kind.expected(backend, HEADS, sequence), rtol=1e-5, atol=4e-6)


def test_scores_far_apart(backend):
    """The largest score may come first, last or between: nothing overflows, nothing is lost."""
    rng = np.random.default_rng(1)
    for place in (0, 40, 600, 699):
        (sequence,) = make_sequences(rng, HEADS, [700], 50)
        sequence.k[place] = 60 * sequence.q[-1, :16]
        kv = KINDS["float32"].poisoned_kv(backend, HEADS, 50)
        (out,) = attend(backend, kv, [Chunk(sequence, 0, 700)], HEADS.params)
        expected = KINDS["float32"].expected(backend, HEADS, sequence)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("length", [100, 1100])
def test_chunks_of_any_size_give_the_same_bits(backend, kind, length):
    params = kind.params(backend, HEADS)
    (sequence,) = make_sequences(np.random.default_rng(2), HEADS, [length], 80)
    whole = Chunk(sequence, 0, length)
    (expected,) = attend(backend, kind.poisoned_kv(backend, HEADS, 80), [whole], params)
    for size in (1, 7, 16, 512):
        kv = kind.poisoned_kv(backend, HEADS, 80)
        assert np.array_equal(attend_in_chunks(backend, kv, whole, size, params), expected), size


@pytest.mark.parametrize("heads", [HEADS, Heads(8, 4, 64), Heads(50, 1, 8)])
def test_neighbours_change_no_bit(backend, kind, heads):
    params = kind.params(backend, heads)
    rng = np.random.default_rng(3)
    sequences = make_sequences(rng, heads, [1, 33, 530, 90], 60)
    begins = [0, 32, 500, 0]  # a prompt of one token, a decode, the chunk of a long prompt, a whole prompt
    chunks = [Chunk(sequence, begin, len(sequence.q)) for sequence, begin in zip(sequences, begins, strict=True)]
    kv = kind.poisoned_kv(backend, heads, 60)
    for chunk in chunks:
        if chunk.begin > 0:
            attend(backend, kv, [Chunk(chunk.sequence, 0, chunk.begin)], params)
    together = attend(backend, kv, chunks, params)
    alone = [attend(backend, kv, [chunk], params)[0] for chunk in chunks]
    backwards = attend(backend, kv, chunks[::-1], params)[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)


def test_block_numbers_and_block_size_change_no_bit(backend, kind):
    params, results = kind.params(backend, HEADS), []
    for block_size, block_seed in [(16, 1), (16, 2), (32, 3), (64, 4)]:
        (sequence,) = make_sequences(np.random.default_rng(4), HEADS, [600], 80, block_size)
        np.random.default_rng(block_seed).shuffle(sequence.block_ids)
        kv = kind.poisoned_kv(backend, HEADS, 80, block_size)
        results.append(attend(backend, kv, [Chunk(sequence, 0, 600)], params, block_size)[0])
    for result in results[1:]:
        assert np.array_equal(result, results[0])


def test_threads_change_no_bit(native_name, kind):
    heads = Heads(6, 2, 32)
    sequences = make_sequences(np.random.default_rng(5), heads, [2000, 60], 150)
    results = []
    for num_threads in (1, 2, 3):
        backend = make_backend(native_name, num_threads)
        kv, params = kind.poisoned_kv(backend, heads, 150), kind.params(backend, heads)
        prompts = attend(backend, kv, [Chunk(s, 0, len(s.q) - 1) for s in sequences], params)
        decodes = attend(backend, kv, [Chunk(s, len(s.q) - 1, len(s.q)) for s in sequences], params)
        results.append(np.concatenate([*prompts, *decodes]))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_a_later_token_of_the_step_is_not_seen(backend, kind):
    """The keys and values of a whole chunk are written before any of its queries attends."""
    rng, params = np.random.default_rng(6), kind.params(backend, HEADS)
    (sequence,) = make_sequences(rng, HEADS, [70], 10)
    kv = kind.poisoned_kv(backend, HEADS, 10)
    (before,) = attend(backend, kv, [Chunk(sequence, 0, 70)], params)
    for x in (sequence.q, sequence.k, sequence.v):
        x[40:] = np.nan
    (after,) = attend(backend, kv, [Chunk(sequence, 0, 70)], params)
    assert np.array_equal(before[:40], after[:40])
    assert np.isnan(after[40:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [1, 16, 17, 100, 700])
def test_what_lies_before_the_window_is_not_seen(backend, dtype, window):
    """Whoever reads it gets NaN; the block that it is in may belong to somebody else by now."""
    kind, length = AttentionKind(dtype, window=window), 1250
    params = kind.params(backend, HEADS)
    (sequence,) = make_sequences(np.random.default_rng(7), HEADS, [length], 100)
    kv = kind.poisoned_kv(backend, HEADS, 100)
    (expected,) = attend(backend, kv, [Chunk(sequence, 0, length)], params)
    begin = length - 70  # its tokens see nothing of the 1180 before it but the last window - 1
    fresh = kind.poisoned_kv(backend, HEADS, 100)
    first_seen = begin + 1 - window
    if first_seen < begin:
        attend(backend, fresh, [Chunk(sequence, first_seen, begin)], params)
    sequence.block_ids[: first_seen // 16] = next(i for i in range(100) if i not in sequence.block_ids)
    (out,) = attend(backend, fresh, [Chunk(sequence, begin, length)], params)
    assert np.array_equal(out, expected[begin:])


@pytest.mark.parametrize(("name", "value"), [("window", 0), ("window", -5), ("soft_cap", 0.0), ("soft_cap", np.inf)])
def test_a_parameter_that_means_nothing_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        AttentionParams(1.0, **{name: value})


def test_there_must_be_a_sink_for_each_head(backend):
    params = AttentionParams(1.0, sinks=backend.load_weight([stored(np.zeros(2, np.float32))]))
    (sequence,) = make_sequences(np.random.default_rng(8), HEADS, [4], 1)
    kv = KINDS["float32"].poisoned_kv(backend, HEADS, 1)
    with pytest.raises((ValueError, IndexError), match=r"size of sinks is 2, expected 3|out of bounds"):
        attend(backend, kv, [Chunk(sequence, 0, 4)], params)
