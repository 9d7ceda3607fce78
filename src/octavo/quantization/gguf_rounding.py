"""Numbers -> blocks of a GGUF file: Q4_0 and Q8_0, rounded as ggml-quants.c does, bit for bit.

The formulas are quantize_row_q4_0_ref and quantize_row_q8_0_ref; each is written for B blocks at once.
"""

from __future__ import annotations

import numpy as np

from octavo.quantization.gguf import BLOCK_FORMATS, ByteArray, Float32Array
from octavo.quantization.gguf_types import BLOCK_SIZES


def quantize(values: Float32Array, type_name: str) -> ByteArray:
    """The bytes of a tensor of that type, a key of ROUNDED_TYPES, or of F32. Rows lie one behind the other.

    Raises ValueError if rows, along the last axis, are no whole number of blocks, or if a number is infinite, not a
    number or beyond what the type's scale can hold.
    """
    if type_name == "F32":
        return np.ascontiguousarray(values, "<f4").reshape(-1).view(np.uint8)
    block_len = BLOCK_SIZES[type_name].num_elements
    if values.shape[-1] % block_len:
        raise ValueError(f"rows of {values.shape[-1]} numbers cannot be {type_name}: it takes multiples of {block_len}")
    x = values.reshape(-1, block_len)
    out = np.empty(len(x), BLOCK_FORMATS[type_name].layout)
    # Tiny scales have no inverse and are zero as halves; those too large are infinite there, and refused below.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ROUNDED_TYPES[type_name](x, out)
    if not np.isfinite(out["d"]).all():
        raise ValueError(f"a number is infinite, not a number or too large for {type_name}")
    return out.view(np.uint8)


def _round_q4_0(x: np.ndarray, out: np.ndarray) -> None:
    """The number that is largest without its sign gets the code 0, which stands for -8."""
    largest = np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1)  # [B, 1]
    d = largest / np.float32(-8)
    codes = np.minimum(np.trunc(x * _inverse(d) + np.float32(8.5)), 15).astype(np.uint8)
    out["d"] = d[:, 0]
    out["q"] = codes[:, :16] | codes[:, 16:] << 4


def _round_q8_0(x: np.ndarray, out: np.ndarray) -> None:
    """Halves are rounded away from zero, as C's roundf does and numpy's rint does not."""
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    size = np.abs(scaled)
    whole = np.floor(size)
    out["d"] = d[:, 0]
    out["q"] = np.copysign(whole + np.floor(2 * (size - whole)), scaled)


def _inverse(d: np.ndarray) -> np.ndarray:
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


ROUNDED_TYPES = {"Q4_0": _round_q4_0, "Q8_0": _round_q8_0}
