"""Dequantization: to the bit what ggml's own package computes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.backends.native import isa

TYPE_NAMES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]


@pytest.fixture(params=isa.runnable_isas())
def extension(request, monkeypatch):
    """Each native build in turn."""
    monkeypatch.setenv("OCTAVO_ISA", request.param)
    isa.load_extension.cache_clear()
    yield isa.load_extension()
    isa.load_extension.cache_clear()


def decode(extension, data, type_name, num_elements):
    out = np.full(num_elements, np.nan, np.float32)
    extension.dequantize(extension.ThreadPool(2), data, type_name, out)
    return out


def random_blocks(rng, type_name, num_blocks):
    quant_type = gguf.GGMLQuantizationType[type_name]
    block_size, num_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    data = rng.integers(0, 256, (num_blocks, num_bytes), dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):  # random scales may be infinite
        return data.ravel(), gguf.quants.dequantize(data, quant_type).ravel(), block_size


@pytest.mark.parametrize("type_name", TYPE_NAMES)
def test_random_blocks(extension, type_name):
    data, expected, _ = random_blocks(np.random.default_rng(0), type_name, 3000)
    out = decode(extension, data, type_name, len(expected))
    is_nan = np.isnan(expected)
    assert is_nan.mean() < 0.1
    assert np.array_equal(np.isnan(out), is_nan)
    assert np.array_equal(out[~is_nan].view(np.uint32), expected[~is_nan].view(np.uint32))


def test_every_half(extension):
    halves = np.arange(2**16, dtype=np.uint16)
    out = decode(extension, halves.view(np.uint8), "F16", 2**16)
    expected = halves.view(np.float16).astype(np.float32)
    assert np.array_equal(out, expected, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(expected))


def test_an_unknown_type_is_refused_with_those_that_are_known(extension):
    with pytest.raises(ValueError, match=r"IQ1_S.*Q6_K"):
        decode(extension, np.zeros(10, np.uint8), "IQ1_S", 256)


@pytest.mark.parametrize("num_elements", [31, 64])
def test_a_length_that_does_not_fit_is_refused(extension, num_elements):
    with pytest.raises(ValueError, match="expected"):
        decode(extension, np.zeros(34, np.uint8), "Q8_0", num_elements)
