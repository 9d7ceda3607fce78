"""Feed-forward layers."""

from __future__ import annotations

from octavo.backends.ops import Array, Ops
from octavo.layers.linear import MergedColumnParallelLinear, RowParallelLinear
from octavo.layers.parameters import Parameters


class GatedMLP:
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, SwiGLU)."""

    def __init__(self, params: Parameters, hidden_size: int, intermediate_size: int) -> None:
        self._gate_up_proj = MergedColumnParallelLinear(
            params, hidden_size, {"gate_proj": intermediate_size, "up_proj": intermediate_size}
        )
        self._down_proj = RowParallelLinear(params.at("down_proj"), intermediate_size, hidden_size)

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[T, hidden_size] -> [T, hidden_size]."""
        return self._down_proj(ops, ops.silu_mul(self._gate_up_proj(ops, x)))
