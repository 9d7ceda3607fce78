"""Floats of 4 and 8 bits, as the numbers of their codes (Micikevicius et al. 2022; Open Compute's MX formats, 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _e4m3() -> NDArray[np.float32]:
    """Sign, 4 bits of exponent, 3 of fraction, no infinity."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    size[code & 127 == 127] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


E4M3 = _e4m3()  # [256]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)  # [16]; -0 is 0
E8M0 = np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan))  # [256], scales
