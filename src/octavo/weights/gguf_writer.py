"""Writes GGUF files, version 3 (github.com/ggml-org/ggml, docs/gguf.md).

A file is, all numbers little-endian:

    "GGUF", u32 version, u64 number of tensors, u64 number of metadata entries
    of each entry:  key, u32 type of the value, value
    of each tensor: name, u32 number of dimensions, u64 each dimension (innermost first), u32 type, u64 offset
    zeros up to a multiple of 32, where the tensors' data begin: offsets count from here
    of each tensor: its data, zeros up to a multiple of 32

A string is a u64 number of bytes and the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from octavo.quantization.gguf_types import num_bytes
from octavo.weights.gguf_file import DEFAULT_ALIGNMENT, TYPE_NAMES

_VERSION = 3
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9  # types of metadata values


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to write. Its bytes come in parts, so that none but the part at hand is in memory."""

    name: str
    type_name: str
    shape: tuple[int, ...]  # outermost dimension first
    read_parts: Callable[[], Iterable[bytes | memoryview]]


def entry(key: str, value: bool | int | float | str | Sequence[str] | Sequence[int]) -> bytes:
    """A metadata entry. A whole number has no sign, those in a list have one."""
    match value:
        case bool():
            return _string(key) + struct.pack("<I?", _BOOL, value)
        case int():
            return _string(key) + struct.pack("<II", _U32, value)
        case float():
            return _string(key) + struct.pack("<If", _F32, value)
        case str():
            return _string(key) + struct.pack("<I", _STRING) + _string(value)
    texts = [_string(item) for item in value if isinstance(item, str)]
    item_type = _STRING if len(texts) == len(value) else _I32
    items = b"".join(texts) if item_type == _STRING else struct.pack(f"<{len(value)}i", *value)
    return _string(key) + struct.pack("<IIQ", _ARRAY, item_type, len(value)) + items


def write_gguf(path: Path, entries: Sequence[bytes], tensors: Sequence[NewTensor]) -> None:
    """Write the file; of one that cannot be finished nothing is left.

    `entries` are metadata as they lie in a file, `general.alignment` not among them. Raises FileExistsError if there is
    something at `path`.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists; name another file, or delete it")
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(entries)))
            file.writelines(entries)
            file.writelines(_tensor_infos(tensors))
            _pad(file)
            for tensor in tensors:
                file.writelines(tensor.read_parts())
                _pad(file)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _tensor_infos(tensors: Sequence[NewTensor]) -> Iterable[bytes]:
    offset = 0
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        yield _string(tensor.name) + dims + struct.pack("<IQ", TYPE_NAMES.index(tensor.type_name), offset)
        offset += num_bytes(tensor.type_name, math.prod(tensor.shape))
        offset += -offset % DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % DEFAULT_ALIGNMENT))
