"""What cannot be built is refused, with the reason."""

from __future__ import annotations

import dataclasses

import pytest

from octavo.backends.reference.backend import ReferenceBackend
from octavo.models.registry import build_model
from octavo.weights.checkpoint import open_checkpoint
from tests.models.conftest import GOLDEN


def build_llama(**changes):
    checkpoint = open_checkpoint(GOLDEN / "llama")
    config = dataclasses.replace(checkpoint.config, **changes)
    return build_model(config, checkpoint.tensors, ReferenceBackend(), max_positions=64)


def test_an_unknown_architecture():
    with pytest.raises(ValueError, match="architecture is 'mamba'; octavo knows llama, qwen2, qwen3"):
        build_llama(architecture="mamba")


def test_weights_of_another_shape():
    with pytest.raises(ValueError, match=r"model.layers.0.mlp.gate_proj.weight has shape \[96, 64\], .* \[128, 64\]"):
        build_llama(intermediate_size=128)
