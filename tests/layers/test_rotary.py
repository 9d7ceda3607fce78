"""The frequencies of the rotary embedding."""

from __future__ import annotations

import math

import numpy as np

from octavo.backends.reference.backend import ReferenceBackend
from octavo.backends.reference.ops import ReferenceOps
from octavo.config import ModelConfig, RopeScaling
from octavo.layers.rotary import RotaryEmbedding, inverse_frequencies, scale_frequencies

SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)


def float32(values: list) -> np.ndarray:
    return np.array(values, np.float32)


def test_inverse_frequencies():
    assert inverse_frequencies(8, 10000.0).tolist() == float32([1, 1e-1, 1e-2, 1e-3]).tolist()


def test_llama3_scaling_keeps_high_frequencies_slows_low_ones_and_blends_between():
    wavelengths = np.array([4, 16, 32, 64, 640], np.float32)  # 16, 4, 2, 1 and 0.1 turns in 64 positions
    inv_freq = np.float32(2 * math.pi) / wavelengths
    kept = np.array([1, 1, 1 / 3, 0, 0])
    expected = kept * inv_freq + (1 - kept) * inv_freq / 8
    scaled = scale_frequencies(inv_freq, SCALING)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)
    assert scaled.dtype == np.float32


def rotate(position: int, **arguments) -> np.ndarray:
    """A head of D = 4 whose pairs point along (1, 0), turned to `position`."""
    config = ModelConfig("llama", 8, 4, 8, 1, 1, 1, 4, 64, 1e-5, rope_theta=100.0, rope_scaling=SCALING)
    rotary = RotaryEmbedding(ReferenceBackend(), config, 64, **arguments)
    return rotary(ReferenceOps(), float32([[1, 1, 0, 0]]), np.array([position]))[0]


def test_the_angle_is_position_times_frequency():
    [fast, slow] = scale_frequencies(float32([1, 0.1]), SCALING)
    expected = [math.cos(5 * fast), math.cos(5 * slow), math.sin(5 * fast), math.sin(5 * slow)]
    np.testing.assert_allclose(rotate(5), expected, atol=1e-6)


def test_divisors_of_the_checkpoint_stand_for_the_scaling():
    expected = [math.cos(5 / 2), math.cos(0.5 / 4), math.sin(5 / 2), math.sin(0.5 / 4)]
    np.testing.assert_allclose(rotate(5, divisors=float32([2, 4])), expected, atol=1e-6)
