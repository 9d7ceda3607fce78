"""A format's table of 16 numbers as the whole numbers that kernels look up in its place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array

_SMALLEST, _LARGEST = 12, 127  # what the largest number may become; with 12 MXFP4's numbers are whole


def round_table(table: Float32Array) -> tuple[NDArray[np.int8], np.float32]:
    """Whole numbers, -127 to 127, and the unit to multiply them with: of all units the one that rounds least.

    MXFP4's table, and any whose numbers are multiples of a twelfth of the largest, is not rounded at all.
    """
    largest = np.abs(table).max()
    units = (largest or np.float32(1)) / np.arange(_SMALLEST, _LARGEST + 1, dtype=np.float32)
    whole = np.rint(table / units[:, None])
    best = int(np.square(whole * units[:, None] - table).sum(1).argmin())
    return whole[best].astype(np.int8), units[best]
