"""Linear layers: y = x W^T + b, the weight of shape [out_features, in_features].

The names say how tensor parallelism cuts a layer (Shoeybi et al. 2019, Megatron-LM, section 3): column-parallel layers
by output, so that each rank computes some of the columns of y; row-parallel ones by input, so that the ranks' results
are summed. On one rank the two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo.backends.ops import Array, Ops
from octavo.layers.parameters import Parameters


class MergedColumnParallelLinear:
    """Several layers of the same input as one: their outputs stand side by side."""

    def __init__(
        self, params: Parameters, in_features: int, out_features_by_name: Mapping[str, int], *, has_bias: bool = False
    ) -> None:
        parts = [(params.at(name), out_features) for name, out_features in out_features_by_name.items()]
        weights = [part.stored("weight", (width, in_features)) for part, width in parts]
        biases = [part.stored("bias", (width,)).to_float32() for part, width in parts] if has_bias else []
        self._weight = params.backend.load_weight(weights, np.concatenate(biases) if has_bias else None)

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[T, in_features] -> [T, sum of out_features]."""
        return ops.linear(x, self._weight)


class QKVParallelLinear:
    """The projections to queries, keys and values as one product."""

    def __init__(self, params: Parameters, hidden_size: int, *, q_size: int, kv_size: int, has_bias: bool) -> None:
        self._widths = (q_size, kv_size, kv_size)
        out_features_by_name = dict(zip(("q_proj", "k_proj", "v_proj"), self._widths, strict=True))
        self._qkv_proj = MergedColumnParallelLinear(params, hidden_size, out_features_by_name, has_bias=has_bias)

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        """[T, hidden_size] -> q [T, q_size], k and v [T, kv_size]."""
        q, k, v = ops.split(self._qkv_proj(ops, x), self._widths)
        return q, k, v


class RowParallelLinear:
    """One layer."""

    def __init__(self, params: Parameters, in_features: int, out_features: int) -> None:
        self._weight = params.backend.load_weight([params.stored("weight", (out_features, in_features))])

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[T, in_features] -> [T, out_features]."""
        return ops.linear(x, self._weight)
