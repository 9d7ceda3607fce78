"""Weights as codes whose scales lie apart, in every build: taken over exactly, whatever the groups and the order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.native import isa
from octavo.backends.native.number_table import round_table
from octavo.backends.ops import StoredTensor
from octavo.quantization.codes import CodeScales
from octavo.quantization.small_floats import E2M1
from tests.backends.op_calls import normal
from tests.backends.test_packed_weights import Kernels, assert_is_product, rounded_activations

BITS = {"int4": 4, "int8": 8}
NF4 = np.array(
    [
        (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
        (0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
    ],
    np.float32,
).reshape(16)


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


def in_table(rng, shape, *, table, group_size):
    """A random matrix of places in a table, with scales that are powers of two."""
    scales = np.exp2(rng.integers(-9, -2, (shape[0], -(-shape[1] // group_size)))).astype(np.float32)
    codes = rng.integers(0, 16, shape).astype(np.uint8)
    return StoredTensor("TABLE4", codes, shape, CodeScales(scales, group_size, table=table))


@pytest.mark.parametrize("num_rows", [1, 3, 50])
@pytest.mark.parametrize(("shape", "group_size"), [((83, 640), 128), ((16, 96), 32), ((5, 70), 128)])
def test_a_table_takes_four_bits(kernels, shape, group_size, num_rows):
    rng = np.random.default_rng(4)
    tensor, x = in_table(rng, shape, table=E2M1, group_size=group_size), normal(rng, num_rows, shape[1])
    packed = kernels.pack("int4", tensor)
    assert np.array_equal(kernels.read(packed), tensor.to_float32())
    assert packed.num_bytes == kernels.pack("int4", coded(rng, shape, bits=4, group_size=group_size)).num_bytes
    # A sum is that of the same whole numbers in eight bits, to the last bit.
    numbers, unit = round_table(E2M1)
    whole = CodeScales(tensor.scales.scales * unit, group_size)
    as_bytes = StoredTensor("I8", numbers[tensor.data].view(np.uint8), shape, whole)
    assert np.array_equal(kernels.linear(x, packed), kernels.linear(x, kernels.pack("int8", as_bytes)))


def test_parts_with_different_tables_are_rounded(kernels):
    rng = np.random.default_rng(5)
    parts = [in_table(rng, (20, 256), table=table, group_size=128) for table in (NF4, E2M1 / 6)]
    weight = np.concatenate([part.to_float32() for part in parts])
    rounded = kernels.read(kernels.pack("int4", *parts))
    assert (np.abs(rounded - weight).reshape(40, -1, 32).max(-1) <= np.ptp(weight.reshape(40, -1, 32), -1) / 25).all()


def test_a_table_is_rounded_to_the_nearest_whole_numbers():
    assert round_table(E2M1)[0].tolist() == [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
    assert round_table(E2M1)[1] == 0.5
    numbers, unit = round_table(NF4)
    assert np.abs(numbers * unit - NF4).max() < 0.004
    assert round_table(np.zeros(16, np.float32))[0].tolist() == [0] * 16


@pytest.mark.parametrize("kind", BITS)
def test_codes_that_do_not_fit_are_rounded_in_groups_of_their_own(kernels, kind):
    rng = np.random.default_rng(6)
    tensor = coded(rng, (20, 256), bits=8, group_size=256)
    tensor.data.view(np.int8)[:, 32:64] //= 16  # whose neighbours have other scales in four bits
    weight = tensor.to_float32().reshape(20, -1, 32)
    rounded = kernels.read(kernels.pack(kind, tensor)).reshape(weight.shape)
    assert (np.abs(rounded - weight).max(-1) <= np.ptp(weight, -1) / 25).all()


def test_scales_too_large_for_halves_are_refused(kernels):
    rng = np.random.default_rng(7)
    tensor = in_table(rng, (4, 64), table=E2M1, group_size=32)
    tensor.scales.scales[3, 1] = 2.0**17
    blocks = np.zeros((4, 2, 17), np.uint8)
    blocks[2, 1, 0] = 144
    for too_large in (tensor, StoredTensor("MXFP4", blocks.reshape(4, -1), (4, 64))):
        with pytest.raises(ValueError, match="a scale is 65536 and kernels hold none above 65504; --dtype bfloat16"):
            kernels.pack("int4", too_large)
        assert np.array_equal(kernels.read(kernels.pack("float32", too_large)), too_large.to_float32())


def test_parts_in_different_orders_are_refused(kernels):
    rng = np.random.default_rng(3)
    parts = [coded(rng, (20, 64), bits=4, group_size=32, is_ordered=False) for _ in range(2)]
    with pytest.raises(ValueError, match=r"different orders.*--dtype bfloat16"):
        kernels.pack("int4", *parts)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (None, "scales go with I4, I8 and TABLE4"),
        ((np.ones((4, 2), np.float32), None, 16, None), "a group has 16 columns, expected a multiple of 32, or all"),
        ((np.ones((4, 2), np.float32), None, 64, None), "columns of scales or zeros is 2, expected 1"),
        ((np.ones((3, 1), np.float32), None, 64, None), "rows of scales or zeros is 3, expected 4"),
        ((np.ones((4, 1), np.float32), np.ones((4, 2), np.float32), 64, None), "columns of scales or zeros is 2"),
        ((np.ones((4, 1), np.float32), None, 64, np.zeros(16, np.int8)), "a table goes with TABLE4"),
    ],
)
def test_scales_that_do_not_fit_are_refused(kernels, scales, message):
    part = ("I4", np.zeros((4, 64), np.uint8), 64, scales)
    with pytest.raises(ValueError, match=message):
        kernels._extension.LinearWeight.pack(kernels._pool, "int4", [part], None)
