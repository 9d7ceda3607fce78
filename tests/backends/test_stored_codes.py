"""Weights as codes whose scales lie apart, in every build: taken over exactly, whatever the groups and the order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.native import isa
from octavo.backends.ops import StoredTensor
from octavo.quantization.codes import CodeScales
from tests.backends.op_calls import normal
from tests.backends.test_packed_weights import Kernels, assert_is_product, rounded_activations

BITS = {"int4": 4, "int8": 8}


@pytest.fixture(scope="module", params=isa.runnable_isas())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each build in turn."""
    return Kernels(request.param)


def coded(rng, shape, *, bits, group_size, has_zeros=False, is_ordered=True):
    """A random matrix of codes, with scales that are halves."""
    num_outputs, num_inputs = shape
    smallest = -1 << bits - 1
    grouped = (num_outputs, -(-num_inputs // group_size))
    scales = rng.uniform(1e-3, 2e-3, grouped).astype(np.float16).astype(np.float32)
    zeros = rng.integers(smallest, -smallest, grouped).astype(np.float32) if has_zeros else None
    order = None if is_ordered else rng.permutation(num_inputs).astype(np.int32)
    codes = rng.integers(smallest, -smallest, shape).astype(np.int8).view(np.uint8)
    return StoredTensor(f"I{bits}", codes, shape, CodeScales(scales, group_size, zeros, order))


@pytest.mark.parametrize("kind", BITS)
@settings(max_examples=25, deadline=None)
@given(
    num_rows=st.integers(1, 40),
    num_outputs=st.integers(1, 90),
    num_inputs=st.integers(1, 600),
    group_size=st.sampled_from([32, 64, 96, 128, 1024]),
    has_zeros=st.booleans(),
    is_ordered=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_codes_are_taken_over(
    kernels, kind, num_rows, num_outputs, num_inputs, group_size, has_zeros, is_ordered, seed
):
    rng = np.random.default_rng(seed)
    tensor = coded(
        rng,
        (num_outputs, num_inputs),
        bits=BITS[kind],
        group_size=group_size,
        has_zeros=has_zeros,
        is_ordered=is_ordered,
    )
    weight, x = tensor.to_float32(), normal(rng, num_rows, num_inputs)
    packed = kernels.pack(kind, tensor)
    assert np.array_equal(kernels.read(packed), weight)
    order = np.arange(num_inputs) if is_ordered else tensor.scales.order
    rounded = rounded_activations(x[:, order])
    # What is multiplied with a code and with its zero point is larger than their difference.
    sizes = dataclasses.replace(tensor.scales, zeros=None, order=None).decode(np.full_like(tensor.data, 1))
    assert_is_product(kernels.linear(x, packed), rounded, weight[:, order], 0.0, sizes * 2 ** BITS[kind])


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("num_rows", [1, 3, 50])
def test_how_scales_are_shared_changes_no_bit(kernels, kind, num_rows, has_zeros):
    rng = np.random.default_rng(0)
    shared = coded(rng, (83, 640), bits=BITS[kind], group_size=128, has_zeros=has_zeros)
    zeros = None if shared.scales.zeros is None else np.repeat(shared.scales.zeros, 4, axis=1)
    apart = CodeScales(np.repeat(shared.scales.scales, 4, axis=1), 32, zeros)
    repeated = StoredTensor(shared.format, shared.data, shared.shape, apart)
    x = normal(rng, num_rows, 640)
    packed, packed_repeated = kernels.pack(kind, shared), kernels.pack(kind, repeated)
    assert np.array_equal(kernels.linear(x, packed), kernels.linear(x, packed_repeated))
    assert packed.num_bytes < packed_repeated.num_bytes


@pytest.mark.parametrize("kind", BITS)
def test_an_order_is_that_of_the_inputs(kernels, kind):
    rng = np.random.default_rng(1)
    tensor = coded(rng, (40, 256), bits=BITS[kind], group_size=64, is_ordered=False)
    in_order = StoredTensor(
        tensor.format, tensor.data, tensor.shape, CodeScales(tensor.scales.scales, tensor.scales.group_size)
    )
    x = normal(rng, 20, 256)
    expected = kernels.linear(x[:, tensor.scales.order].copy(), kernels.pack(kind, in_order))
    assert np.array_equal(kernels.linear(x, kernels.pack(kind, tensor)), expected)


def test_parts_of_one_weight_share_scales_as_far_as_all_do(kernels):
    rng = np.random.default_rng(2)
    parts = [coded(rng, (20, 256), bits=4, group_size=size, has_zeros=size == 64) for size in (128, 64, 256)]
    packed = kernels.pack("int4", *parts)
    assert np.array_equal(kernels.read(packed), np.concatenate([part.to_float32() for part in parts]))
    wider = kernels.pack("int8", *parts)
    assert np.array_equal(kernels.read(wider), kernels.read(packed))


def test_parts_in_different_orders_are_refused(kernels):
    rng = np.random.default_rng(3)
    parts = [coded(rng, (20, 64), bits=4, group_size=32, is_ordered=False) for _ in range(2)]
    with pytest.raises(ValueError, match=r"different orders.*--dtype bfloat16"):
        kernels.pack("int4", *parts)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (None, "scales go with I4 and I8"),
        ((np.ones((4, 2), np.float32), None, 16), "a group has 16 columns, expected a multiple of 32, or all"),
        ((np.ones((4, 2), np.float32), None, 64), "columns of scales or zeros is 2, expected 1"),
        ((np.ones((3, 1), np.float32), None, 64), "rows of scales or zeros is 3, expected 4"),
        ((np.ones((4, 1), np.float32), np.ones((4, 2), np.float32), 64), "columns of scales or zeros is 2"),
    ],
)
def test_scales_that_do_not_fit_are_refused(kernels, scales, message):
    part = ("I4", np.zeros((4, 64), np.uint8), 64, scales)
    with pytest.raises(ValueError, match=message):
        kernels._extension.LinearWeight.pack(kernels._pool, "int4", [part], None)
