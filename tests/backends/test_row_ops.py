"""Ops that look at each row alone: rms_norm, rotary, add, silu_mul, gather_rows, split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.op_calls import call, normal
from tests.backends.stored_tensors import stored

SEEDS = st.integers(0, 2**32 - 1)


def call_on(backend, op, x):
    """What op(ops, x) gives."""
    return call(backend, lambda ops: op(ops, x))


def assert_close(out, expected, relative=1e-6, absolute=1e-6):
    np.testing.assert_allclose(out, expected, rtol=relative, atol=absolute)


@settings(max_examples=30, deadline=None)
@given(num_rows=st.integers(1, 20), num_groups=st.integers(1, 5), size=st.integers(1, 200), seed=SEEDS)
def test_rms_norm_over_groups(backend, num_rows, num_groups, size, seed):
    rng = np.random.default_rng(seed)
    x, weight = 3 * normal(rng, num_rows, num_groups * size), normal(rng, size)
    packed = backend.load_weight([stored(weight)])
    out = call(backend, lambda ops: ops.rms_norm(x, packed, 1e-5))
    groups = x.astype(np.float64).reshape(num_rows, num_groups, size)
    expected = groups / np.sqrt((groups**2).mean(axis=-1, keepdims=True) + 1e-5) * weight
    assert_close(out, expected.reshape(x.shape), relative=2e-6)


def rotate(x, positions, cos, sin):
    """The formula in complex numbers: the first half of a head is real, the second imaginary."""
    half = cos.shape[1]
    heads = x.astype(np.float64).reshape(len(x), -1, 2 * half)
    turned = (heads[..., :half] + 1j * heads[..., half:]) * (cos + 1j * sin)[positions][:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1).reshape(x.shape)


@settings(max_examples=30, deadline=None)
@given(num_rows=st.integers(1, 20), num_heads=st.integers(1, 5), half=st.integers(1, 70), seed=SEEDS)
def test_rotary_turns_each_head_by_its_position(backend, num_rows, num_heads, half, seed):
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 6, (30, half))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    x, positions = normal(rng, num_rows, num_heads * 2 * half), rng.integers(0, 30, num_rows).astype(np.int32)
    table = backend.rotary_table(cos, sin)
    out = call(backend, lambda ops: ops.rotary(x, positions, table))
    assert_close(out, rotate(x, positions, cos, sin))


@settings(max_examples=20, deadline=None)
@given(num_rows=st.integers(1, 20), size=st.integers(1, 100), seed=SEEDS)
def test_silu_mul(backend, num_rows, size, seed):
    rng = np.random.default_rng(seed)
    gate_up = 8 * normal(rng, num_rows, 2 * size)
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    assert_close(call(backend, lambda ops: ops.silu_mul(gate_up)), gate / (1 + np.exp(-gate)) * up)


def test_silu_mul_at_the_ends_of_the_scale(backend):
    gate = np.array([-1e30, -200, -100, -88, -0.0, 0.0, 1e-30, 88, 100, 1e30, np.inf, np.nan], np.float32)
    out = call(backend, lambda ops: ops.silu_mul(np.concatenate([gate, np.ones_like(gate)])[None]))[0]
    expected = np.array([0, 0, 0, 0, 0, 0, 5e-31, 88, 100, 1e30, np.inf, np.nan])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-35)  # below the smallest normal number: 0


@settings(max_examples=20, deadline=None)
@given(num_rows=st.integers(1, 20), size=st.integers(1, 100), seed=SEEDS)
def test_add_is_exact(backend, num_rows, size, seed):
    rng = np.random.default_rng(seed)
    x, y = normal(rng, num_rows, size), normal(rng, num_rows, size)
    assert np.array_equal(call(backend, lambda ops: ops.add(x, y)), x + y)


@settings(max_examples=20, deadline=None)
@given(num_rows=st.integers(1, 20), num_taken=st.integers(0, 20), size=st.integers(1, 100), seed=SEEDS)
def test_gather_rows_is_exact(backend, num_rows, num_taken, size, seed):
    rng = np.random.default_rng(seed)
    x, rows = normal(rng, num_rows, size), rng.integers(0, num_rows, num_taken).astype(np.int32)
    assert np.array_equal(call(backend, lambda ops: ops.gather_rows(x, rows)), x[rows])


def test_split_cuts_columns(backend):
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    parts = [call_on(backend, lambda ops, i: ops.split(x, [5, 3, 4])[i], i) for i in range(3)]
    assert np.array_equal(np.concatenate(parts, axis=1), x)
    assert [part.shape[1] for part in parts] == [5, 3, 4]


@pytest.mark.parametrize("widths", [[5, 3], [12, 1]])
def test_split_refuses_widths_that_do_not_fit(backend, widths):
    with pytest.raises(ValueError, match=r"12"):
        call(backend, lambda ops: ops.split(np.zeros((2, 12), np.float32), widths)[0])


def test_no_op_writes_to_its_inputs(backend):
    rng = np.random.default_rng(0)
    x, positions = normal(rng, 3, 48), np.arange(3, dtype=np.int32)
    before = x.copy()
    norm = backend.load_weight([stored(normal(rng, 16))])
    table = backend.rotary_table(normal(rng, 4, 8), normal(rng, 4, 8))
    for function in (
        lambda ops: ops.rms_norm(x, norm, 1e-5),
        lambda ops: ops.rotary(x, positions, table),
        lambda ops: ops.add(x, x),
        lambda ops: ops.silu_mul(x),
    ):
        call(backend, function)
        assert np.array_equal(x, before)


def test_a_row_has_the_same_bits_whatever_rows_are_with_it(backend):
    rng = np.random.default_rng(1)
    x, positions = 2 * normal(rng, 700, 96), rng.integers(0, 50, 700).astype(np.int32)
    norm = backend.load_weight([stored(normal(rng, 48))])
    table = backend.rotary_table(normal(rng, 50, 12), normal(rng, 50, 12))
    ops_by_name = {
        "rms_norm": lambda ops, rows: ops.rms_norm(x[rows], norm, 1e-6),
        "rotary": lambda ops, rows: ops.rotary(x[rows], positions[rows], table),
        "silu_mul": lambda ops, rows: ops.silu_mul(x[rows]),
    }
    for name, op in ops_by_name.items():
        together = call_on(backend, op, slice(None))
        for rows in (slice(0, 1), slice(699, 700), slice(3, 9), slice(100, 600)):
            assert np.array_equal(call_on(backend, op, rows), together[rows]), name


def test_rows_may_be_columns_of_a_wider_array(backend):
    rng = np.random.default_rng(4)
    wide, positions = normal(rng, 5, 100), np.arange(5, dtype=np.int32)
    norm = backend.load_weight([stored(normal(rng, 24))])
    table = backend.rotary_table(normal(rng, 5, 12), normal(rng, 5, 12))
    narrow = wide[:, 20:68].copy()
    for op in (
        lambda ops, x: ops.rms_norm(x, norm, 1e-6),
        lambda ops, x: ops.rotary(x, positions, table),
        lambda ops, x: ops.add(x, x),
        lambda ops, x: ops.silu_mul(x),
        lambda ops, x: ops.gather_rows(x, np.array([4, 0], np.int32)),
    ):
        columns = call(backend, lambda ops: ops.split(wide, [20, 48, 32])[1])
        assert np.array_equal(call_on(backend, op, columns), call_on(backend, op, narrow))
