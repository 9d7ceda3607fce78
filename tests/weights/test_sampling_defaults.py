"""What the makers of a model recommend: read from either format, refused where no request could say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError
from tests.weights.tiny_model import tiny_config, write_tiny_folder, write_tiny_gguf

CONFIG = tiny_config("llama")


def folder_with(path: Path, **values: Any) -> Path:
    folder = write_tiny_folder(path / "model", CONFIG)
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


def test_a_folder_without_any(tmp_path: Path) -> None:
    assert open_checkpoint(write_tiny_folder(tmp_path, CONFIG)).sampling_defaults == {}


def test_generation_config(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
        min_p=None,
        repetition_penalty=1,
        max_new_tokens=64,
        do_sample=True,
        eos_token_id=[1, 2],
    )
    assert open_checkpoint(folder).sampling_defaults == {
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "repetition_penalty": 1,
        "max_tokens": 64,
    }


def test_a_gguf_file(tmp_path: Path) -> None:
    metadata = {"general.sampling.temp": 0.5, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.25}
    assert open_checkpoint(write_tiny_gguf(tmp_path / "plain.gguf", CONFIG)).sampling_defaults == {}
    checkpoint = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf", CONFIG, metadata=metadata))
    assert checkpoint.sampling_defaults == {"temperature": 0.5, "top_k": 20, "repetition_penalty": 1.25}


@pytest.mark.parametrize("value", [-0.5, 3, "warm", True, [1.0]])
def test_what_no_request_could_say_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json: temperature is .*--generation-config vllm"):
        _ = open_checkpoint(folder_with(tmp_path, temperature=value)).sampling_defaults
