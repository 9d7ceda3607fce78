"""Weights of every kind, in every build: what they are packed into, and what is multiplied with them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.native import isa
from octavo.backends.native.stored_parts import parts_to_pack
from octavo.backends.native.weight_kinds import KINDS
from octavo.quantization.gguf import BLOCK_FORMATS
from tests.backends.op_calls import normal
from tests.backends.stored_tensors import stored

GROUP = 32
UNIT = 2.0**-24  # the relative error of one rounding
HALF_UNIT = 2.0**-11  # the same of a half
TINY = 2.0**-24  # the smallest half above 0
WHOLE_KINDS = ("int8", "int4")
# Formats that a kind takes over exactly. Q4_K's codes are kept as well, but not the bits of its scales.
EXACT = {
    "float32": set(BLOCK_FORMATS),
    "bfloat16": {"BF16"},
    "int8": {"Q8_0", "Q5_0", "Q4_0", "MXFP4"},
    "int4": {"Q4_0", "Q4_1", "MXFP4"},
}


class Kernels:
    """A build of the extension and a pool of its threads."""

    def __init__(self, name: str, num_threads: int = 2) -> None:
        self._extension = isa._load(name)
        self.name = name
        self._pool = self._extension.ThreadPool(num_threads)

    def pack(self, kind, *tensors, bias=None):
        parts, order = parts_to_pack(tensors, kind)
        return self._extension.LinearWeight.pack(self._pool, kind, parts, bias, order)

    def linear(self, x, weight, out=None):
        if out is None:
            out = np.full((len(x), weight.num_outputs), np.nan, np.float32)
        self._extension.linear(self._pool, x, weight, out)
        return out

    def read(self, weight):
        """All rows, as an embedding gives them."""
        ids = np.arange(weight.num_outputs, dtype=np.int32)
        out = np.full((len(ids), weight.num_inputs), np.nan, np.float32)
        self._extension.embed(self._pool, ids, weight, out)
        return out


@pytest.fixture(scope="module", params=isa.runnable_isas())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each build in turn."""
    return Kernels(request.param)


def grouped(array):
    """[..., K] -> [..., G, 32], padded with zeros."""
    padding = -array.shape[-1] % GROUP
    padded = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, padding)])
    return padded.reshape(*array.shape[:-1], -1, GROUP)


def rounded_activations(x):
    """The numbers that activations are rounded to, by the formula in csrc/quantized_rows.h."""
    groups = grouped(x)
    largest = np.abs(groups).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        codes = np.where(largest < 2.0**-100, 0, np.rint(groups * (np.float32(127) / largest)))
    scales = (largest / np.float32(127)).astype(np.float64)
    return (codes * scales).reshape(len(x), -1)[:, : x.shape[1]]


def in_two_parts(x):
    """The numbers that tiles of bfloat16 round activations to, by the formula in csrc/linear_tiles.cpp."""

    def nearest(numbers):
        return ((numbers.view(np.int32) + 0x8000) & ~0xFFFF).view(np.float32)

    upper = nearest(x)
    return upper + nearest(x - upper)


def assert_is_product(out, x, weight, bias=0.0, terms=None):
    """`out` is x @ weight.T + bias but for the roundings of float32, of which there are some in each group of 32.

    `terms`: what is multiplied on the way, where it is larger than the weight.
    """
    exact = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    largest = np.abs(grouped(weight if terms is None else terms)).max(-1).astype(np.float64)
    # A minimum and the code times the scale may be larger than their sum: up to twice the largest of the group.
    sizes = 4 * np.abs(grouped(x.astype(np.float64))).sum(-1) @ largest.T + np.abs(bias)
    bound = (4 + np.sqrt(x.shape[1])) * UNIT * sizes
    error = np.abs(out - exact)
    assert (error <= bound).all(), f"error {error.max()}, at most {bound.min()} to {bound.max()} allowed"


def largest_step(kind, weight):
    """How far a packed weight may be from the weight it was, [N, K]."""
    if kind == "float32":
        return np.zeros_like(weight)
    if kind == "bfloat16":
        return np.abs(weight) * 2.0**-8
    groups = grouped(weight)
    if kind == "int8":
        step = np.abs(groups).max(-1, keepdims=True) / 127
    else:  # the minimum is a half, too
        step = (groups.max(-1, keepdims=True) - groups.min(-1, keepdims=True)) / 15
        step = step + 2 * HALF_UNIT * np.abs(groups).max(-1, keepdims=True)
    step = step * (1 + 2 * HALF_UNIT) + 2 * TINY  # halves: so far apart are scales and minima below 2**-14
    return np.broadcast_to(step / 2, groups.shape).reshape(len(weight), -1)[:, : weight.shape[1]] * (1 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    num_rows=st.integers(1, 40),
    num_outputs=st.integers(1, 90),
    num_inputs=st.integers(1, 900),
    has_bias=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_multiplies_what_was_packed(kernels, kind, num_rows, num_outputs, num_inputs, has_bias, seed):
    rng = np.random.default_rng(seed)
    x, weight = normal(rng, num_rows, num_inputs), normal(rng, num_outputs, num_inputs)
    bias = normal(rng, num_outputs) if has_bias else None
    packed = kernels.pack(kind, stored(weight), bias=bias)
    assert packed.kind == kind
    assert (packed.num_outputs, packed.num_inputs) == weight.shape
    rounded = rounded_activations(x) if kind in WHOLE_KINDS else x
    if kind == "bfloat16" and kernels.name == "amx":
        rounded = in_two_parts(x)
    assert_is_product(kernels.linear(x, packed), rounded, kernels.read(packed), 0.0 if bias is None else bias)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    num_outputs=st.integers(1, 40),
    num_inputs=st.integers(1, 600),
    exponent=st.integers(-40, 3),
    shift=st.floats(-3, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_packed_weight_is_the_nearest(kernels, kind, num_outputs, num_inputs, exponent, shift, seed):
    rng = np.random.default_rng(seed)
    weight = ((normal(rng, num_outputs, num_inputs) + shift) * 2.0**exponent).astype(np.float32)
    packed = kernels.read(kernels.pack(kind, stored(weight)))
    assert (np.abs(packed - weight) <= largest_step(kind, weight)).all()


@pytest.mark.parametrize(
    ("kind", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.004), ("int8", 0.012), ("int4", 0.1)]
)
def test_a_product_is_near_that_of_the_numbers_themselves(kernels, kind, tolerance):
    rng = np.random.default_rng(0)
    x, weight = normal(rng, 33, 576), normal(rng, 100, 576)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    error = kernels.linear(x, kernels.pack(kind, stored(weight))) - exact
    assert np.sqrt((error**2).mean() / (exact**2).mean()) < tolerance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_inputs", [45, 640])
def test_a_row_has_the_same_bits_whatever_is_with_it(kernels, kind, num_inputs):
    rng = np.random.default_rng(1)
    x, weight, bias = normal(rng, 70, num_inputs), normal(rng, 83, num_inputs), normal(rng, 83)
    packed = kernels.pack(kind, stored(weight), bias=bias)
    together = kernels.linear(x, packed)
    for num_rows in range(1, 70):
        begin = int(rng.integers(0, 71 - num_rows))
        rows = slice(begin, begin + num_rows)
        assert np.array_equal(kernels.linear(x[rows].copy(), packed), together[rows]), rows
    for row in range(70):
        assert np.array_equal(kernels.linear(x[row : row + 1].copy(), packed)[0], together[row]), row
    order = rng.permutation(70)
    assert np.array_equal(kernels.linear(x[order], packed), together[order])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_rows", [1, 7, 200])
def test_threads_and_strides_change_no_bit(kernels, kind, num_rows):
    rng = np.random.default_rng(2)
    wide, weight = normal(rng, num_rows, 1200), normal(rng, 300, 700)
    results = []
    for num_threads in (1, 2, 3):
        of_threads = Kernels(kernels.name, num_threads)
        results.append(of_threads.linear(wide[:, 100:800].copy(), of_threads.pack(kind, stored(weight))))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    out = np.full((num_rows, 400), np.nan, np.float32)
    kernels.linear(wide[:, 100:800], kernels.pack(kind, stored(weight)), out[:, 50:350])
    assert np.array_equal(out[:, 50:350], results[0])
    assert np.isnan(out[:, :50]).all()
    assert np.isnan(out[:, 350:]).all()


def random_tensor(rng, name, num_outputs, num_inputs):
    """A tensor in this format, and the numbers that the gguf package reads in it."""
    values = normal(rng, num_outputs, num_inputs)
    if name in ("Q4_K", "Q5_K", "Q6_K"):  # which the package reads but does not write
        block_size, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        blocks = rng.integers(0, 256, (num_outputs, num_inputs // block_size, num_bytes), dtype=np.uint8)
        scales = slice(208, 210) if name == "Q6_K" else slice(0, 4)
        size = (*blocks.shape[:2], (scales.stop - scales.start) // 2)
        blocks[..., scales] = rng.uniform(1e-3, 2e-3, size).astype(np.float16).view(np.uint8)
        tensor = type(stored(values))(name, blocks.reshape(num_outputs, -1), values.shape)
    else:
        tensor = stored(values, name)
    return tensor, gguf.quants.dequantize(tensor.data, gguf.GGMLQuantizationType[name]).reshape(values.shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_every_format_becomes_every_kind(kernels, kind, name):
    tensor, values = random_tensor(np.random.default_rng(3), name, 37, 768)
    packed = kernels.read(kernels.pack(kind, tensor))
    if name in EXACT[kind]:
        assert np.array_equal(packed, values)
    elif (kind, name) == ("int4", "Q4_K"):  # code * scale + minimum, of which both halves are rounded
        groups = grouped(values)
        spread = groups.max(-1, keepdims=True) - groups.min(-1, keepdims=True)
        bound = HALF_UNIT * (2 * np.abs(groups).max(-1, keepdims=True) + 2 * spread)
        assert (np.abs(grouped(packed) - groups) <= bound).all()
    else:
        assert (np.abs(packed - values) <= largest_step(kind, values)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_stacked(kernels, kind):
    rng = np.random.default_rng(4)
    tensors = [random_tensor(rng, name, n, 256)[0] for name, n in [("Q4_K", 13), ("Q4_0", 20), ("Q8_0", 1), ("F16", 9)]]
    together = kernels.read(kernels.pack(kind, *tensors))
    # Alone, Q4_0 has no minima in int4: its numbers are the same all the same.
    alone = [kernels.read(kernels.pack(kind, tensor)) for tensor in tensors]
    assert np.array_equal(together, np.concatenate(alone))


def test_rows_of_a_part_may_lie_apart(kernels):
    tensor = stored(normal(np.random.default_rng(5), 24, 64), "Q8_0")
    wide = np.zeros((24, 100), np.uint8)
    wide[:, 3 : 3 + tensor.data.shape[1]] = tensor.data
    apart = type(tensor)(tensor.format, wide[::2, 3 : 3 + tensor.data.shape[1]], (12, 64))
    expected = kernels.read(kernels.pack("int8", tensor))[::2]
    assert np.array_equal(kernels.read(kernels.pack("int8", apart)), expected)


def q4_0(codes):
    """Blocks of Q4_0 with a scale of one half: the numbers (codes - 8) / 2."""
    groups = codes.reshape(len(codes), -1, GROUP).astype(np.uint8)
    nibbles = groups[..., :16] | groups[..., 16:] << 4
    scale = np.broadcast_to(np.array([0.5], np.float16).view(np.uint8), (*groups.shape[:2], 2))
    data = np.concatenate([scale, nibbles], -1).reshape(len(codes), -1)
    return type(stored(np.zeros((1, 32), np.float32)))("Q4_0", data, codes.shape)


@pytest.mark.parametrize("kind", WHOLE_KINDS)
@pytest.mark.parametrize("has_minimum", [False, True])
def test_the_largest_sums_do_not_overflow(kernels, kind, has_minimum):
    """All codes at an end of their range, activations at an end of theirs: exact in 64 bits, and here."""
    rng = np.random.default_rng(6)
    signs = np.stack([np.ones(64), -np.ones(64), *rng.choice([-1, 1], (6, 64))]).astype(np.float32)
    x = 127 * signs
    codes = np.stack([np.full(64, 15), np.full(64, 0), *np.where(signs > 0, 15, 0), *np.where(signs > 0, 0, 15)])
    values = (codes.astype(np.float32) - 8) / 2
    tensor = stored(values * 1, "Q4_1") if has_minimum else q4_0(codes)
    packed = kernels.pack(kind, tensor)
    weight = kernels.read(packed)
    if not has_minimum:
        assert np.array_equal(weight, values)
    assert_is_product(kernels.linear(x, packed), x, weight)
    extreme = kernels.pack("int8", stored(np.where(codes > 7, 2.0, -2.0).astype(np.float32)))
    assert_is_product(kernels.linear(x, extreme), x, kernels.read(extreme))


@pytest.mark.parametrize("kind", WHOLE_KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(kernels, kind, value):
    rng = np.random.default_rng(7)
    x, packed = normal(rng, 20, 70), kernels.pack(kind, stored(normal(rng, 40, 70)))
    clean = kernels.linear(x, packed)
    poisoned = x.copy()
    poisoned[7, 50] = value
    out = kernels.linear(poisoned, packed)
    assert np.isnan(out[7]).all()
    assert np.array_equal(np.delete(out, 7, axis=0), np.delete(clean, 7, axis=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 1e-40])
def test_rows_of_almost_nothing_give_the_bias(kernels, kind, value):
    rng = np.random.default_rng(8)
    bias = normal(rng, 50)
    packed = kernels.pack(kind, stored(normal(rng, 50, 96)), bias=bias)
    assert np.array_equal(kernels.linear(np.full((9, 96), value, np.float32), packed), np.tile(bias, (9, 1)))


def test_fewer_bits_take_fewer_bytes(kernels):
    weight = stored(np.zeros((160, 640), np.float32))
    sizes = {kind: kernels.pack(kind, weight).num_bytes / (160 * 640) for kind in KINDS}
    assert sizes == {"float32": 4, "bfloat16": 2, "int8": 1 + 2 / 32, "int4": 0.5 + 4 / 32}
    assert kernels.pack("int4", stored(np.zeros((160, 640), np.float32), "Q4_0")).num_bytes == 160 * 640 * 18 / 32


@pytest.mark.parametrize(
    ("kind", "part", "bias", "error", "message"),
    [
        ("int3", ("F32", (4, 128), 32), None, ValueError, "cannot pack a weight as int3, only float32"),
        ("int8", ("IQ1_S", (4, 50), 32), None, ValueError, "IQ1_S.*Q6_K"),
        ("int8", ("Q8_0", (4, 33), 32), None, ValueError, "bytes of a row is 33, expected 34"),
        ("int4", ("Q4_K", (4, 18), 32), None, ValueError, "a row has 32 elements, expected a multiple of 256"),
        ("int4", ("F32", (0, 128), 32), None, ValueError, "the weight is empty"),
        ("int4", ("F32", (4, 128), 32), np.zeros(5, np.float32), ValueError, "size of bias is 5, expected 4"),
        ("int4", ("F32", (128,), 32), None, TypeError, "a part must be"),
    ],
)
def test_what_does_not_fit_is_refused(kernels, kind, part, bias, error, message):
    name, shape, num_inputs = part
    with pytest.raises(error, match=message):
        kernels._extension.LinearWeight.pack(
            kernels._pool, kind, [(name, np.zeros(shape, np.uint8), num_inputs, None)], bias
        )


@pytest.mark.skipif("amx" not in isa.runnable_isas(), reason="needs a CPU with AMX")
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1"])
@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, 70),
    num_outputs=st.integers(1, 90),
    num_groups=st.integers(1, 40),
    has_bias=st.booleans(),
    exponent=st.integers(-20, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_tiles_give_the_bits_of_vectors(name, num_rows, num_outputs, num_groups, has_bias, exponent, seed):
    rng = np.random.default_rng(seed)
    x = normal(rng, num_rows, num_groups * GROUP) * np.float32(2.0**exponent)
    x[rng.integers(num_rows), rng.integers(x.shape[1])] = rng.choice([0, 1e6, np.inf, np.nan])
    weight = stored(normal(rng, num_outputs, x.shape[1]), name)
    bias = normal(rng, num_outputs) if has_bias else None
    kind = "int8" if name == "Q8_0" else "int4"
    tiles, vectors = (
        kernels.linear(x, kernels.pack(kind, weight, bias=bias)) for kernels in (Kernels("amx"), Kernels("avx512"))
    )
    assert np.array_equal(tiles, vectors, equal_nan=True)
