"""Activation-aware weight quantization (Lin et al. 2023): four bits where the inputs that matter keep their precision.

A column whose inputs are large is made larger before it is rounded, and what makes its input is made smaller by the
same factor, so that the model computes what it did. The factors are searched on a grid, as AutoAWQ does, for those with
which the layer's outputs on a calibration text change least; then for each group how far its largest weights should be
clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array

MOST = 15  # the largest code
_NUM_RATIOS = 20
_CLIPPED = np.arange(1.0, 0.5, -0.05, dtype=np.float32)  # to which shares of their largest weight groups are clipped


class Quantized(NamedTuple):
    """A matrix [N, K] in groups along K: weight = scale * (code - zero)."""

    codes: NDArray[np.uint8]  # [N, K]
    zeros: NDArray[np.uint8]  # [N, G]
    scales: NDArray[np.float16]  # [N, G]

    def numbers(self) -> Float32Array:
        """The weights, [N, K]."""
        moved = self.codes.reshape(*self.scales.shape, -1).astype(np.float32) - self.zeros[:, :, None]
        return (moved * self.scales.astype(np.float32)[:, :, None]).reshape(self.codes.shape)


def quantize(weight: Float32Array, group_size: int) -> Quantized:
    """The nearest codes, with scales and zero points so that a group's range is just covered."""
    groups = weight.reshape(len(weight), -1, group_size)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    scales = np.maximum((high - low) / MOST, 1e-6).astype(np.float16)
    exact = scales.astype(np.float32)
    zeros = np.clip(np.rint(-low / exact), 0, MOST)
    codes = np.clip(np.rint(groups / exact[:, :, None]) + zeros[:, :, None], 0, MOST)
    return Quantized(codes.astype(np.uint8).reshape(weight.shape), zeros.astype(np.uint8), scales)


def search_scales(x: Float32Array, weights: Sequence[Float32Array], group_size: int) -> Float32Array:
    """The factor of each column, [K], for layers that share the input x, [T, K]. 1 where no factors are better."""
    weight = np.concatenate(weights)
    x_size = np.abs(x).mean(0)
    largest = np.abs(weight.reshape(len(weight), -1, group_size)).max(-1, keepdims=True)
    w_size = (np.abs(weight.reshape(len(weight), -1, group_size)) / np.maximum(largest, 1e-6)).mean(0).reshape(-1)
    candidates = [np.ones_like(x_size)]
    for ratio in np.arange(_NUM_RATIOS, dtype=np.float32) / _NUM_RATIOS:
        scales = np.maximum(x_size**ratio / (w_size ** (1 - ratio) + 1e-4), 1e-4)
        candidates.append(scales / np.sqrt(scales.max() * scales.min()))
    losses = [_loss(x, weight, quantize(weight * scales, group_size).numbers() / scales) for scales in candidates]
    best: Float32Array = candidates[int(np.argmin(losses))]
    return best


def clip_weights(x: Float32Array, weight: Float32Array, group_size: int) -> Float32Array:
    """The weight, each group's largest cut off as far as its share of the outputs gets nearer by it."""
    groups = weight.reshape(len(weight), -1, group_size)  # [N, G, 32]
    inputs = x.reshape(len(x), -1, group_size).transpose(1, 2, 0)  # [G, 32, T]
    largest = np.abs(groups).max(-1, keepdims=True)
    best, least = groups, np.full(groups.shape[:2], np.inf, np.float32)
    for share in _CLIPPED:
        clipped = np.clip(groups, -share * largest, share * largest)
        change = quantize(clipped.reshape(weight.shape), group_size).numbers().reshape(groups.shape) - groups
        loss = np.square(change.swapaxes(0, 1) @ inputs).mean(-1).T  # [N, G]
        best = np.where((loss < least)[:, :, None], clipped, best)
        least = np.minimum(loss, least)
    return best.reshape(weight.shape)


def _loss(x: Float32Array, weight: Float32Array, other: Float32Array) -> float:
    return float(np.square(x @ (weight - other).T).mean())
