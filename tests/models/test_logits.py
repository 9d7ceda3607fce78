"""octavo's logits are those of transformers, at every position (tools/make_golden.py says how those were made)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from octavo.config import BLOCK_SIZE
from tests.backends.sampling_batches import GREEDY, sampling
from tests.models.conftest import GOLDEN
from tests.models.sequence_runner import Chunk

MAX_ERROR = 1e-4
BLOCK_IDS = [7, 3, 11, 2, 30]
VOCAB_STRIDE = 16  # of the demo model's logits one in so many is kept


def tiny_golden(name: str) -> tuple[list[int], np.ndarray]:
    golden = np.load(GOLDEN / name / "logits.npz")
    return golden["token_ids"].tolist(), golden["logits"]


@pytest.mark.parametrize("name", ["llama", "llama3", "qwen2", "qwen3"])
def test_tiny_models(name, open_tiny):
    token_ids, expected = tiny_golden(name)
    [logits] = open_tiny(name).logits(Chunk(token_ids, 0, BLOCK_IDS))
    assert logits.shape == expected.shape
    assert np.abs(logits - expected).max() < MAX_ERROR


@pytest.mark.parametrize("name", ["llama", "llama3"])
def test_gguf_and_safetensors_are_the_same_model(name, open_tiny):
    token_ids, _ = tiny_golden(name)
    [from_safetensors] = open_tiny(name).logits(Chunk(token_ids, 0, BLOCK_IDS))
    [from_gguf] = open_tiny(f"{name}/model.gguf").logits(Chunk(token_ids, 0, BLOCK_IDS))
    for position in (0, 1, 17, 63):
        assert np.abs(from_gguf[position] - from_safetensors[position]).max() < MAX_ERROR


@pytest.mark.model
def test_demo_model(demo_runner):
    golden = np.load(GOLDEN / "smollm2.npz")
    [logits] = demo_runner.logits(Chunk(golden["token_ids"].tolist(), 0, BLOCK_IDS))
    assert np.abs(logits[:, ::VOCAB_STRIDE] - golden["logits"]).max() < MAX_ERROR
    assert np.abs(np.log(np.exp(logits.astype(np.float64)).sum(axis=1)) - golden["logsumexp"]).max() < MAX_ERROR
    assert logits.argmax(axis=1).tolist() == golden["argmax"].tolist()


@pytest.mark.model
@pytest.mark.parametrize("chat", json.loads((GOLDEN / "smollm2_chat.json").read_text()), ids=["story", "sky"])
def test_demo_model_answers(chat, demo_runner):
    prompt, expected = chat["prompt_token_ids"], chat["output_token_ids"]
    block_ids = list(range(1 + (len(prompt) + len(expected)) // BLOCK_SIZE))
    answer: list[int] = []
    chunk = Chunk(prompt, 0, block_ids)
    while len(answer) < len(expected):
        [logits] = demo_runner.logits(chunk)
        [token_id] = demo_runner.step.sample(
            logits[-1:], sampling(1, logits.shape[1], temperature=GREEDY)
        ).token_ids.tolist()
        answer.append(token_id)
        chunk = Chunk([token_id], len(prompt) + len(answer) - 1, block_ids)
    assert answer == expected
