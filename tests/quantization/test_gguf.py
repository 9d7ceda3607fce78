"""The formulas of the GGUF formats against those of the gguf package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.quantization.gguf import BLOCK_FORMATS, dequantize
from octavo.quantization.gguf_types import BLOCK_SIZES, num_bytes


def random_bytes(type_name: str, num_blocks: int) -> np.ndarray:
    """Bytes of that many blocks; every bit pattern may occur, NaN and infinite scales too."""
    size = num_blocks * BLOCK_FORMATS[type_name].layout.itemsize
    return np.random.default_rng(list(type_name.encode())).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_equals_the_gguf_package(type_name: str) -> None:
    num_blocks = 300_000 // BLOCK_SIZES[type_name].num_elements  # more than are computed at once
    data = random_bytes(type_name, num_blocks)
    ours = dequantize(data, type_name, num_blocks * BLOCK_SIZES[type_name].num_elements)
    with np.errstate(all="ignore"):
        theirs = gguf.dequantize(data, gguf.GGMLQuantizationType[type_name])
    assert ours.dtype == np.float32 and ours.flags.c_contiguous
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_float32_is_the_data_itself_if_aligned() -> None:
    values = np.arange(6, dtype=np.float32)
    data = values.view(np.uint8)
    assert np.shares_memory(dequantize(data, "F32", 6), values)
    shifted = np.concatenate([np.zeros(1, np.uint8), data])[1:]
    copied = dequantize(shifted, "F32", 6)
    assert copied.flags.aligned and copied.tolist() == values.tolist()


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_block_sizes_are_those_of_the_format(type_name: str) -> None:
    block = BLOCK_SIZES[type_name]
    assert block == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    assert BLOCK_FORMATS[type_name].layout.itemsize == block.num_bytes
    assert num_bytes(type_name, 3 * block.num_elements) == 3 * block.num_bytes


def test_an_unknown_type_is_named_with_those_that_are_supported() -> None:
    with pytest.raises(ValueError, match=r"IQ2_XXS is not supported; octavo reads F32, F16, .*Q6_K"):
        dequantize(np.zeros(66, np.uint8), "IQ2_XXS", 256)


@pytest.mark.parametrize(("size", "num_elements"), [(17, 32), (18, 31), (36, 32)])
def test_bytes_must_fill_the_elements(size: int, num_elements: int) -> None:
    with pytest.raises(ValueError, match="do not fill"):
        dequantize(np.zeros(size, np.uint8), "Q4_0", num_elements)
