"""Damaged checkpoints: whatever a few flipped bytes say, the answer is a model or one CheckpointError."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError
from tests.engine.small_tokenizers import trained_byte_level
from tests.weights.tiny_model import tiny_config, write_tiny_folder, write_tiny_gguf

NUM_MUTATIONS = 300
HUGE = [2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]


def flip_a_bit(data: bytearray, rng: random.Random) -> bytearray:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def write_a_huge_number(data: bytearray, rng: random.Random) -> bytearray:
    struct.pack_into("<Q", data, rng.randrange(len(data) - 8), rng.choice(HUGE))
    return data


def write_a_small_number(data: bytearray, rng: random.Random) -> bytearray:
    data[rng.randrange(len(data))] = rng.randrange(13)
    return data


def cut_off(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data))]


def leave_a_hole(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 16) :]


MUTATIONS: list[Callable[[bytearray, random.Random], bytearray]] = [
    flip_a_bit,
    write_a_huge_number,
    write_a_small_number,
    cut_off,
    leave_a_hole,
]


def open_completely(path: Path) -> None:
    """Open the checkpoint, its tokenizer and all its parameters."""
    checkpoint = open_checkpoint(path)
    tokenizer = Tokenizer(checkpoint.tokenizer_spec)
    tokenizer.decode(tokenizer.encode("the lighthouse", add_special_tokens=True), skip_special_tokens=True)
    for name in checkpoint.tensors.names():
        assert checkpoint.tensors.stored(name).to_float32().nbytes <= 8 * checkpoint.size_bytes


def refusals(path: Path, opened: Path, header_bytes: int) -> int:
    """Mutate the beginning of the file `path` again and again; how often opening `opened` was refused."""
    whole = path.read_bytes()
    rng = random.Random(11)
    num_refusals = 0
    for i in range(NUM_MUTATIONS):
        head = MUTATIONS[i % len(MUTATIONS)](bytearray(whole[:header_bytes]), rng)
        is_cut = len(head) < header_bytes and MUTATIONS[i % len(MUTATIONS)] is cut_off
        path.write_bytes(head if is_cut else bytes(head) + whole[header_bytes:])
        try:
            open_completely(opened)
        except CheckpointError:
            num_refusals += 1
    return num_refusals


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_damaged_gguf_files(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config(architecture, num_layers=1))
    open_completely(path)
    assert refusals(path, path, header_bytes=12_000) > NUM_MUTATIONS // 4


@pytest.mark.parametrize("file_name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damaged_folders(tmp_path: Path, file_name: str) -> None:
    write_tiny_folder(tmp_path, tiny_config("llama", num_layers=1))
    trained_byte_level().save(str(tmp_path / "tokenizer.json"))
    open_completely(tmp_path)
    path = tmp_path / file_name
    assert refusals(path, tmp_path, header_bytes=min(1200, path.stat().st_size)) > NUM_MUTATIONS // 4


def test_every_truncation_of_a_gguf_header_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama", num_layers=1))
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            open_checkpoint(path)
