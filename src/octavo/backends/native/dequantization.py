"""From the blocks of GGUF files to floats, on all CPUs: a model is dequantized while nothing else runs."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.native.isa import load_extension
from octavo.backends.ops import Float32Array


def dequantize(data: NDArray[np.uint8], type_name: str, num_elements: int) -> Float32Array:
    """The `num_elements` floats that `data`, blocks of ggml's type `type_name`, stands for, bit for bit as in ggml.

    Types: F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. Raises ValueError for another one, and if the
    length of `data` is not what `num_elements` take; ImportError if the extension was not built.
    """
    out = np.empty(num_elements, np.float32)
    load_extension().dequantize(_pool(), np.ascontiguousarray(data, np.uint8).ravel(), type_name, out)
    return out


@cache
def _pool() -> Any:
    return load_extension().ThreadPool(os.cpu_count() or 1)
