"""What the kernels take and fill: float32 arrays whose rows are contiguous."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from octavo.backends.ops import Float32Array


def float_array(values: ArrayLike) -> Float32Array:
    """`values` itself where it is a C-contiguous float32 array, otherwise a copy that is."""
    return np.ascontiguousarray(values, dtype=np.float32)


def empty(num_rows: int, num_columns: int) -> Float32Array:
    """Room for a result; the kernel writes all of it."""
    return np.empty((num_rows, num_columns), np.float32)
