"""The safetensors reader against the safetensors package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.weights.safetensors import SafetensorsSource
from octavo.weights.source import CheckpointError


def write(path: Path, header: Any, data: bytes) -> Path:
    """A file with this header, whatever it says."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def entry(shape: list[Any], start: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_reads_what_the_package_writes(tmp_path: Path, dtype: type) -> None:
    values: np.ndarray = np.random.default_rng(1).standard_normal((5, 7)).astype(dtype)
    save_file({"a": values, "b": values[0].copy()}, tmp_path / "x.safetensors", metadata={"format": "pt"})
    source = SafetensorsSource([tmp_path / "x.safetensors"])
    assert sorted(source.names()) == ["a", "b"] and "a" in source and "c" not in source
    assert source.shape("a") == (5, 7)
    loaded = source.stored("a").to_float32()
    assert loaded.dtype == np.float32 and loaded.flags.c_contiguous
    np.testing.assert_array_equal(loaded, values.astype(np.float32))
    np.testing.assert_array_equal(source.stored("b").to_float32(), values[0].astype(np.float32))


def test_bfloat16(tmp_path: Path) -> None:
    halves = np.array([0x3F80, 0xC000, 0x7F80, 0x0001, 0x4049, 0x8000], "<u2")
    path = write(tmp_path / "x", {"a": entry([2, 3], 0, 12, "BF16")}, halves.tobytes())
    loaded = SafetensorsSource([path]).stored("a").to_float32()
    assert loaded.ravel().tolist() == [1.0, -2.0, np.inf, 2.0**-133, 3.140625, 0.0]


def test_data_that_is_not_aligned(tmp_path: Path) -> None:
    header = json.dumps({"a": entry([3], 0, 12)}).encode()
    header += b" " * (-len(header) % 8 + 3)
    path = write(tmp_path / "x", header, np.array([1, 2, 3], "<f4").tobytes())
    loaded = SafetensorsSource([path]).stored("a").to_float32()
    assert loaded.tolist() == [1, 2, 3] and loaded.flags.aligned


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "x: .*: the file is damaged or cut short"),
        (b"\xff\xfe", "damaged"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "damaged"),
        ({"a": 1}, "the entry of a is malformed"),
        ({"a": {"dtype": "F32", "shape": [1]}}, "the entry of a is malformed"),
        ({"a": entry([1], 0, "4")}, "the entry of a is malformed"),
        ({"a": entry([4], 0, 4, "F8_E5M2")}, "a has dtype F8_E5M2; octavo reads F32, F16, BF16, F8_E4M3"),
        ({"a": entry([-1, -1], 0, 4)}, r"a has shape \[-1, -1\]"),
        ({"a": entry(["1"], 0, 4)}, r"a has shape \['1'\]"),
        ({"a": entry([2], 0, 4)}, "cannot lie in bytes 0 to 4"),
        ({"a": entry([2], 4, 12)}, "cannot lie in bytes 4 to 12"),
        ({"a": entry([2], -8, 0)}, "cannot lie in bytes -8 to 0"),
        ({"a": entry([2**40, 2**40], 0, 2**82)}, "cannot lie in bytes"),
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, header: Any, message: str) -> None:
    path = write(tmp_path / "x", header, bytes(8))
    with pytest.raises(CheckpointError, match=message):
        SafetensorsSource([path])


@pytest.mark.parametrize("data", [b"", b"abc", (2**63).to_bytes(8, "little"), (100).to_bytes(8, "little") + b"{}"])
def test_short_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match="x"):
        SafetensorsSource([tmp_path / "x"])
