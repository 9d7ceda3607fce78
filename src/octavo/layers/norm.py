"""Normalization."""

from __future__ import annotations

from octavo.backends.ops import Array, Ops
from octavo.layers.parameters import Parameters


class RMSNorm:
    """Root mean square normalization (Zhang & Sennrich 2019) of a row, or of each head in it."""

    def __init__(self, params: Parameters, size: int, eps: float) -> None:
        self._weight = params.backend.load_weight([params.stored("weight", (size,))])
        self._eps = eps

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[T, G * size] -> same; each group of `size` columns is normalized by itself."""
        return ops.rms_norm(x, self._weight, self._eps)
