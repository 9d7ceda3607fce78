"""A token's logits do not depend on how its sequence was cut into steps, where it is kept, or who shared the step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.sequence_runner import Chunk

pytestmark = pytest.mark.equality

TOKEN_IDS = np.random.default_rng(7).integers(320, size=70).tolist()
CUTS = {
    "decode only": [1] * 70,
    "whole blocks": [16, 16, 16, 16, 6],
    "prefill and decode": [64, 1, 1, 1, 1, 1, 1],
    "anyhow": [7, 33, 1, 1, 28],
}


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("name", ["llama3", "qwen2", "qwen3"])
def test_chunks(name, sizes, open_tiny_anyhow):
    runner = open_tiny_anyhow(name)
    [at_once] = runner.logits(Chunk(TOKEN_IDS, 0, [7, 3, 11, 2, 30]))
    in_chunks = runner.logits_in_chunks(TOKEN_IDS, sizes, [8, 4, 9, 1, 5])
    assert in_chunks.tobytes() == at_once.tobytes()


def test_batch_mates(open_tiny_anyhow):
    runner = open_tiny_anyhow("llama")
    [alone] = runner.logits(Chunk(TOKEN_IDS, 0, [0, 1, 2, 3, 4]))
    runner.logits(Chunk(TOKEN_IDS[:40], 0, [9, 8, 7]))
    stranger = Chunk(TOKEN_IDS[30:33], 0, [5])
    prefill = Chunk(TOKEN_IDS, 0, [20, 13, 22, 11, 24])
    decode = Chunk(TOKEN_IDS[40:41], 40, [9, 8, 7])
    _, prefilled, decoded = runner.logits(stranger, prefill, decode)
    assert prefilled.tobytes() == alone.tobytes()
    assert decoded.tobytes() == alone[40:41].tobytes()


@pytest.mark.model
@pytest.mark.parametrize("cut", ["prefill and decode", "anyhow"])
def test_demo_model_in_chunks(cut, demo_runner):
    [at_once] = demo_runner.logits(Chunk(TOKEN_IDS, 0, [7, 3, 11, 2, 30]))
    in_chunks = demo_runner.logits_in_chunks(TOKEN_IDS, CUTS[cut], [8, 4, 9, 1, 5])
    assert in_chunks.tobytes() == at_once.tobytes()
