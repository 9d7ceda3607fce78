"""The container format of GGUF versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md): metadata and tensors.

A file is not to be trusted: every length, count and offset is checked against the size of the file before it is used.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.quantization.gguf_types import BLOCK_SIZES, num_bytes
from octavo.weights.source import CheckpointError

_VERSIONS = (2, 3)
_MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SCALARS = {id: struct.Struct("<" + code) for id, code in enumerate("BbHhIif?")} | {
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}

# ggml's tensor types by number. Those that are not in BLOCK_SIZES are listed so that an error can name them.
TYPE_NAMES = str.split(
    "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S "
    "IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 "
    "IQ4_NL_4_4 IQ4_NL_4_8 IQ4_NL_8_8 MXFP4"
)


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where a tensor lies in the file."""

    type_name: str
    shape: tuple[int, ...]  # outermost dimension first, the reverse of the file's order
    offset_bytes: int  # from the beginning of the file
    size_bytes: int

    @property
    def num_elements(self) -> int:
        """The product of the dimensions."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class StringArray:
    """An array of strings in the metadata, not read yet: a vocabulary is large and not every reader needs it."""

    data: mmap.mmap
    offset_bytes: int
    num_strings: int

    def read(self) -> list[str]:
        """The strings. Raises CheckpointError if they are not UTF-8."""
        try:
            return [str(self.data[start:end], "utf-8") for start, end in _spans(self)]
        except UnicodeDecodeError as error:
            raise CheckpointError(f"a string in the metadata is not UTF-8 ({error}): the file is damaged") from None


@dataclass(frozen=True, slots=True)
class NumberArray:
    """An array of numbers in the metadata, not read yet."""

    data: mmap.mmap
    offset_bytes: int
    num_numbers: int
    code: str  # struct's, of one number

    def read(self) -> list[Any]:
        """The numbers."""
        return list(struct.unpack_from(f"<{self.num_numbers}{self.code}", self.data, self.offset_bytes))


class GGUFFile:
    """A GGUF file, mapped into memory.

    `metadata` holds scalars as Python values and arrays as NumberArray and StringArray.
    Raises CheckpointError, naming the file, if it cannot be read or contradicts itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise CheckpointError(f"cannot read {path}: {error}") from error
        try:
            cursor = _Cursor(self._data)
            num_tensors = _read_header(cursor)
            num_entries = cursor.count(min_item_bytes=13)  # a key's length, a type and one byte
            self.metadata: dict[str, Any] = {}
            self._entry_spans: dict[str, tuple[int, int]] = {}
            for _ in range(num_entries):
                start, key = cursor.offset, cursor.string()
                self.metadata[key] = cursor.value(cursor.u32())
                self._entry_spans[key] = start, cursor.offset
            self.tensors = self._read_tensors(cursor, num_tensors)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None

    def entry(self, key: str) -> bytes:
        """A metadata entry as it lies in the file: key, type and value."""
        start, end = self._entry_spans[key]
        return self._data[start:end]

    def bytes_of(self, tensor: GGUFTensor) -> memoryview:
        """The tensor's bytes, without a copy; those of tensors that were read before leave the memory."""
        self._data.madvise(mmap.MADV_DONTNEED)  # who looks at them again reads them again
        return memoryview(self._data)[tensor.offset_bytes : tensor.offset_bytes + tensor.size_bytes]

    def _read_tensors(self, cursor: _Cursor, num_tensors: int) -> dict[str, GGUFTensor]:
        infos = {cursor.string(): _read_tensor_info(cursor) for _ in range(num_tensors)}
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
            raise CheckpointError(f"general.alignment is {alignment!r}; it must be a multiple of 8")
        data_start = -(-cursor.offset // alignment) * alignment
        for name, (_, _, offset) in infos.items():
            if offset % alignment:
                raise CheckpointError(f"tensor {name} begins at {offset}, not a multiple of {alignment}: damaged")
        return {name: self._place(name, *info, data_start) for name, info in infos.items()}

    def _place(self, name: str, type_id: int, shape: tuple[int, ...], offset: int, data_start: int) -> GGUFTensor:
        type_name = TYPE_NAMES[type_id] if type_id < len(TYPE_NAMES) else f"number {type_id}"
        if type_name not in BLOCK_SIZES:
            raise CheckpointError(
                f"tensor {name} is of type {type_name}; octavo reads {', '.join(BLOCK_SIZES)}: "
                "convert the model to one of them"
            )
        row, block = shape[-1], BLOCK_SIZES[type_name].num_elements
        if 0 in shape or row % block:
            raise CheckpointError(f"tensor {name} has shape {shape}; rows of {type_name} are multiples of {block}")
        size, start = num_bytes(type_name, math.prod(shape)), data_start + offset
        if start + size > len(self._data):
            raise CheckpointError(
                f"tensor {name} ends at byte {start + size}, the file at {len(self._data)}: "
                "the file is cut short or damaged; fetch it again"
            )
        return GGUFTensor(type_name, shape, start, size)


class _Cursor:
    """Reads one value after the other, and never past the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.offset = 0

    def take(self, num_bytes: int) -> int:
        """Step over that many bytes; return where they begin."""
        start = self.offset
        if num_bytes > len(self.data) - start:
            raise CheckpointError(
                f"{num_bytes} bytes are announced at byte {start}, the file has {len(self.data)}: "
                "it is cut short or damaged; fetch it again"
            )
        self.offset += num_bytes
        return start

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self.take(8))[0]
        return value

    def count(self, min_item_bytes: int) -> int:
        """The number of items that follow, each at least that large."""
        count = self.u64()
        if count * min_item_bytes > len(self.data) - self.offset:
            raise CheckpointError(f"{count} items are announced, more than the file has room for: it is damaged")
        return count

    def string(self) -> str:
        size = self.u64()
        start = self.take(size)
        try:
            return str(self.data[start : start + size], "utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"the string at byte {start} is not UTF-8: the file is damaged") from None

    def value(self, type_id: int) -> Any:
        """A metadata value of a type given by GGUF's number for it."""
        if type_id == _STRING:
            return self.string()
        if type_id == _ARRAY:
            return self._array(self.u32())
        scalar = _scalar(type_id)
        return scalar.unpack_from(self.data, self.take(scalar.size))[0]

    def _array(self, type_id: int) -> NumberArray | StringArray:
        if type_id == _STRING:
            strings = StringArray(self.data, self.offset + 8, self.count(min_item_bytes=8))
            for _, end in _spans(strings):
                self.offset = end
            return strings
        scalar = _scalar(type_id)
        count = self.count(min_item_bytes=scalar.size)
        return NumberArray(self.data, self.take(count * scalar.size), count, scalar.format[1:])


def _read_header(cursor: _Cursor) -> int:
    """Check magic and version; return the number of tensors."""
    start = cursor.take(4)
    if cursor.data[start : start + 4] != b"GGUF":
        raise CheckpointError("this is not a GGUF file: it does not begin with 'GGUF'")
    version = cursor.u32()
    if version not in _VERSIONS:
        raise CheckpointError(f"GGUF version {version} is not supported; octavo reads little-endian versions 2 and 3")
    return cursor.count(min_item_bytes=24)  # a name's length, no dimensions, a type and an offset


def _read_tensor_info(cursor: _Cursor) -> tuple[int, tuple[int, ...], int]:
    """Type number, shape and offset of the tensor whose name has just been read."""
    num_dims = cursor.u32()
    if not 1 <= num_dims <= _MAX_DIMS:
        raise CheckpointError(f"a tensor has {num_dims} dimensions; it can have 1 to {_MAX_DIMS}: the file is damaged")
    dims = [cursor.u64() for _ in range(num_dims)]
    return cursor.u32(), tuple(reversed(dims)), cursor.u64()


def _spans(strings: StringArray) -> Iterator[tuple[int, int]]:
    """First byte and end of each string."""
    data, offset, limit, unpack = strings.data, strings.offset_bytes, len(strings.data), _U64.unpack_from
    for _ in range(strings.num_strings):
        if offset + 8 > limit:
            raise CheckpointError("an array of strings ends past the end of the file: it is cut short or damaged")
        start = offset + 8
        offset = start + unpack(data, offset)[0]
        if offset > limit:
            raise CheckpointError("an array of strings ends past the end of the file: it is cut short or damaged")
        yield start, offset


def _scalar(type_id: int) -> struct.Struct:
    if type_id not in _SCALARS:
        raise CheckpointError(f"a metadata value is of type number {type_id}, which GGUF does not define here")
    return _SCALARS[type_id]
