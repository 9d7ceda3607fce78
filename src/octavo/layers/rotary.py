"""Rotary position embedding (Su et al. 2021, RoFormer).

Positions times frequencies are rounded to float32 before their cosine is taken, as transformers does it: at position
1000 that rounding moves an angle by up to 3e-5, so a table computed more precisely would give other logits than those
the model was trained to give.
"""

from __future__ import annotations

import math

import numpy as np

from octavo.backends.ops import Array, Backend, Float32Array, Ops
from octavo.config import ModelConfig, RopeScaling


class RotaryEmbedding:
    """Turns queries and keys by angles that grow with their positions; one table serves all layers."""

    def __init__(
        self, backend: Backend, config: ModelConfig, max_positions: int, divisors: Float32Array | None = None
    ) -> None:
        inv_freq = inverse_frequencies(config.head_dim, config.rope_theta)
        if divisors is not None:  # [D / 2] a checkpoint that brings them has put the scaling into them
            inv_freq = inv_freq / divisors
        elif config.rope_scaling is not None:
            inv_freq = scale_frequencies(inv_freq, config.rope_scaling)
        angles = np.arange(max_positions, dtype=np.float32)[:, None] * inv_freq  # [max_positions, D / 2]
        self._table = backend.rotary_table(np.cos(angles), np.sin(angles))

    def __call__(self, ops: Ops, x: Array, positions: Array) -> Array:
        """[T, heads * D], [T] -> [T, heads * D]. Positions must be below `max_positions`."""
        return ops.rotary(x, positions, self._table)


def inverse_frequencies(head_dim: int, theta: float) -> Float32Array:
    """Radians by which one position turns each pair of components, [D / 2]: theta^(-2i / D)."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    # A float32 power is off by a bit here and there, and thousands of positions multiply that.
    powers = np.power(theta, exponents, dtype=np.float64).astype(np.float32)
    return np.float32(1) / powers


def scale_frequencies(inv_freq: Float32Array, scaling: RopeScaling) -> Float32Array:
    """Slow low frequencies down by `factor`, keep high ones, and pass smoothly from one to the other in between.

    Low and high by the number of turns in the context that the model was trained on first (Llama 3.1, Meta's
    `apply_scaling`; transformers' `rope_type: llama3`).
    """
    wavelengths = np.float32(2 * math.pi) / inv_freq  # positions to a full turn
    num_turns = np.float32(scaling.original_max_position_embeddings) / wavelengths
    low, high = np.float32(scaling.low_freq_factor), np.float32(scaling.high_freq_factor)
    kept = np.clip((num_turns - low) / (high - low), 0, 1)  # share of the frequency that is kept as it was
    return (1 - kept) * inv_freq / np.float32(scaling.factor) + kept * inv_freq
