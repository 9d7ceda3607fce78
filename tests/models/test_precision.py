"""Weights of fewer bits predict nearly what float32 predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends.native.backend import NativeBackend
from tests.models.conftest import GOLDEN, open_runner
from tests.models.sequence_runner import Chunk, SequenceRunner

pytestmark = pytest.mark.model

BLOCK_IDS = [7, 3, 11]


def logprobs(runner: SequenceRunner) -> np.ndarray:
    [logits] = runner.logits(Chunk(np.load(GOLDEN / "smollm2.npz")["token_ids"].tolist(), 0, BLOCK_IDS))
    centered = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return centered - np.log(np.exp(centered).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("options", "largest_mean"),
    [
        ({"dtype": "bfloat16"}, 0.0005),
        ({"quantization": "int8"}, 0.01),
        ({"quantization": "int4"}, 0.006),  # whose weights are those of the file
    ],
)
def test_what_is_lost(
    demo_model_path: Path, demo_runner: SequenceRunner, options: dict[str, Any], largest_mean: float
) -> None:
    exact = logprobs(demo_runner)
    rounded = logprobs(open_runner(demo_model_path, NativeBackend(2, **options)))
    divergence = (np.exp(exact) * (exact - rounded)).sum(axis=1)  # Kullback and Leibler's, of each position
    assert 0 < divergence.mean() < largest_mean
    assert (exact.argmax(axis=1) == rounded.argmax(axis=1)).mean() > 0.9
