"""linear and embed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.conftest import make_backend
from tests.backends.op_calls import call, normal
from tests.backends.stored_tensors import stored

UNIT = 2.0**-24  # the relative error of one rounding


def linear(backend, x, packed):
    return call(backend, lambda ops: ops.linear(x, packed))


def assert_close(out, x, weight, bias=0.0):
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    # Roundings of a sum of K products walk at random: about sqrt(K) of them, relative to the sum of sizes.
    bound = (4 + np.sqrt(x.shape[1])) * UNIT * (np.abs(x) @ np.abs(weight).T + np.abs(bias))
    error = np.abs(out - (x @ weight.T + bias))
    assert (error <= bound).all(), f"error {error.max()}, at most {bound.min()} to {bound.max()} allowed"


@settings(max_examples=30, deadline=None)
@given(
    num_rows=st.integers(1, 40),
    num_outputs=st.integers(1, 90),
    num_inputs=st.integers(1, 900),
    has_bias=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_a_product_of_matrices(backend, num_rows, num_outputs, num_inputs, has_bias, seed):
    rng = np.random.default_rng(seed)
    x, weight = normal(rng, num_rows, num_inputs), normal(rng, num_outputs, num_inputs)
    bias = normal(rng, num_outputs) if has_bias else None
    packed = backend.load_weight([stored(weight)], bias)
    out = linear(backend, x, packed)
    assert out.shape == (num_rows, num_outputs)
    assert_close(out, x, weight, 0.0 if bias is None else bias.astype(np.float64))


@pytest.mark.parametrize(("num_rows", "num_outputs", "num_inputs"), [(1, 960, 576), (130, 576, 1536), (300, 64, 384)])
def test_shapes_of_models(backend, num_rows, num_outputs, num_inputs):
    rng = np.random.default_rng(num_rows)
    x, weight = normal(rng, num_rows, num_inputs), normal(rng, num_outputs, num_inputs)
    packed = backend.load_weight([stored(weight)])
    assert_close(linear(backend, x, packed), x, weight)


@pytest.mark.parametrize("num_inputs", [100, 384, 1000])
def test_a_row_has_the_same_bits_whatever_rows_are_with_it(backend, num_inputs):
    rng = np.random.default_rng(0)
    x, weight, bias = normal(rng, 61, num_inputs), normal(rng, 83, num_inputs), normal(rng, 83)
    packed = backend.load_weight([stored(weight)], bias)
    together = linear(backend, x, packed)
    for begin, end in [(0, 1), (60, 61), (5, 7), (3, 10), (0, 13), (20, 44), (7, 61)]:
        assert np.array_equal(linear(backend, x[begin:end].copy(), packed), together[begin:end])
    order = rng.permutation(61)
    assert np.array_equal(linear(backend, x[order], packed), together[order])


def test_threads_change_no_bit(native_name):
    rng = np.random.default_rng(1)
    weight = normal(rng, 200, 500)
    for num_rows in (1, 5, 100):
        x = normal(rng, num_rows, 500)
        results = []
        for num_threads in (1, 2, 3):
            backend = make_backend(native_name, num_threads)
            packed = backend.load_weight([stored(weight)])
            results.append(linear(backend, x, packed))
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])


def test_rows_may_be_columns_of_a_wider_array(backend):
    rng = np.random.default_rng(2)
    wide, weight = normal(rng, 9, 120), normal(rng, 30, 50)
    packed = backend.load_weight([stored(weight)])
    expected = linear(backend, wide[:, 40:90].copy(), packed)
    out = call(backend, lambda ops: ops.linear(ops.split(wide, [40, 50, 30])[1], packed))
    assert np.array_equal(out, expected)


def test_a_row_of_nan_stays_in_its_row(backend):
    rng = np.random.default_rng(3)
    x, weight = normal(rng, 20, 70), normal(rng, 40, 70)
    packed = backend.load_weight([stored(weight)])
    clean = linear(backend, x, packed)
    poisoned = x.copy()
    poisoned[7] = np.nan
    out = linear(backend, poisoned, packed)
    assert np.isnan(out[7]).all()
    assert np.array_equal(np.delete(out, 7, axis=0), np.delete(clean, 7, axis=0))


def test_no_rows_make_no_rows(backend):
    packed = backend.load_weight([stored(np.ones((5, 3), np.float32))])
    assert linear(backend, np.zeros((0, 3), np.float32), packed).shape == (0, 5)


@settings(max_examples=20, deadline=None)
@given(num_ids=st.integers(1, 50), vocab_size=st.integers(1, 70), width=st.integers(1, 70), seed=st.integers(0, 99))
def test_embed_takes_rows_exactly(backend, num_ids, vocab_size, width, seed):
    rng = np.random.default_rng(seed)
    weight, ids = normal(rng, vocab_size, width), rng.integers(0, vocab_size, num_ids).astype(np.int32)
    packed = backend.load_weight([stored(weight)])
    assert np.array_equal(call(backend, lambda ops: ops.embed(ids, packed)), weight[ids])
