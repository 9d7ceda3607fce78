"""Tensors as files hold them, made from numbers."""

from __future__ import annotations

import gguf
import numpy as np

from octavo.backends.ops import StoredTensor


def stored(values: np.ndarray, name: str = "F32") -> StoredTensor:
    """The numbers, [N, K] or [N], in the format of that name; the gguf package rounds them where it must."""
    data = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    return StoredTensor(name, np.ascontiguousarray(data).view(np.uint8), values.shape)
