"""What is rounded to GGUF's blocks equals what the gguf package makes of the same numbers, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.quantization.gguf_rounding import ROUNDED_TYPES, quantize


def rows(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((300, 96)).astype(np.float32)
    if kind == "halfway":  # quotients fall between two codes; the largest comes with both signs
        return rng.integers(-8, 9, values.shape).astype(np.float32) / 2
    if kind == "zeros":
        values[::2] = 0
        values[1::4] = -0.0
    if kind == "sizes":  # from where the scale is zero as a half to near its limit
        values *= np.float32(10) ** rng.integers(-12, 5, (300, 1)).astype(np.float32)
    return values


@pytest.mark.parametrize("type_name", ROUNDED_TYPES)
@pytest.mark.parametrize("kind", ["normal", "halfway", "zeros", "sizes"])
def test_equals_the_gguf_package(type_name: str, kind: str) -> None:
    values = rows(kind)
    theirs = gguf.quantize(values, gguf.GGMLQuantizationType[type_name])
    np.testing.assert_array_equal(quantize(values, type_name).reshape(theirs.shape), theirs)


def test_a_block_worked_by_hand() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = 4, -2, 1.25, -4  # the first of the largest makes the scale: 4 / -8
    block = quantize(values, "Q4_0")
    assert block[:2].view(np.float16).tolist() == [-0.5]
    assert (block[2:6] & 15).tolist() == [0, 12, 6, 15]  # -8, 4, -2 and, 8 being one too large, 7
    assert (block[2:] >> 4).tolist() == [8] * 16


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e9])
@pytest.mark.parametrize("type_name", ROUNDED_TYPES)
def test_what_no_scale_can_hold_is_refused(type_name: str, value: float) -> None:
    values = np.ones((2, 64), np.float32)
    values[1, 40] = value
    with pytest.raises(ValueError, match=f"infinite, not a number or too large for {type_name}"):
        quantize(values, type_name)


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(ValueError, match="rows of 48 numbers cannot be Q4_0: it takes multiples of 32"):
        quantize(np.ones((2, 48), np.float32), "Q4_0")
