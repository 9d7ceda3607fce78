"""Reading all parameters, one after the other, never has them all in memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.backends.ops import ByteArray
from octavo.weights.gguf_file import GGUFFile
from octavo.weights.safetensors import SafetensorsSource
from tests.weights.gguf_writing import write_gguf

NAMES = ("a", "b", "c", "d")
MIB = 1 << 20
TENSORS = {name: np.ones((4, 2 * MIB), np.float32) for name in NAMES}  # 32 MiB each


def open_gguf(folder: Path) -> Callable[[str], ByteArray]:
    file = GGUFFile(write_gguf(folder / "large.gguf", {"general.architecture": "none"}, TENSORS))
    return lambda name: np.frombuffer(file.bytes_of(file.tensors[name]), np.uint8)


def open_safetensors(folder: Path) -> Callable[[str], ByteArray]:
    save_file(TENSORS, folder / "large.safetensors")
    source = SafetensorsSource([folder / "large.safetensors"])
    return lambda name: source.stored(name).data


@pytest.mark.parametrize("open_file", [open_gguf, open_safetensors])
def test_one_tensor_at_a_time(tmp_path: Path, open_file: Callable[[Path], Callable[[str], ByteArray]]) -> None:
    read = open_file(tmp_path)
    before = file_bytes_in_memory()
    for name in NAMES:
        assert int(read(name).sum(dtype=np.int64)) == 8 * MIB * (0x80 + 0x3F)
        assert 30 * MIB < file_bytes_in_memory() - before < 40 * MIB


def file_bytes_in_memory() -> int:
    match = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024
