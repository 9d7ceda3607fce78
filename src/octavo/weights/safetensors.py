"""The safetensors format (github.com/huggingface/safetensors): a length, a JSON header, the tensors' bytes.

Read here rather than by the safetensors package, whose numpy front has no bfloat16. A file is not to be trusted:
every length and offset is checked against its size.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import ByteArray, StoredTensor
from octavo.quantization.gguf import BLOCK_FORMATS, dequantize
from octavo.weights.source import CheckpointError

_FLOATS = ("F32", "F16", "BF16")  # of which parameters are; the others are parts of quantized ones
_DTYPES = {
    **{name: BLOCK_FORMATS[name].layout for name in _FLOATS},
    "F8_E4M3": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Where a tensor lies."""

    data: mmap.mmap
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


class SafetensorsSource:
    """The parameters in one or several safetensors files, as a WeightSource.

    Raises CheckpointError, naming the file, for one that cannot be read or contradicts itself.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._tensors: dict[str, _Tensor] = {}
        for path in paths:
            self._tensors.update(_read_file(path))

    def names(self) -> list[str]:
        """See WeightSource."""
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightSource."""
        return self._tensor(name).shape

    def stored(self, name: str) -> StoredTensor:
        """See WeightSource. Raises CheckpointError for numbers that are no floats: they mean nothing by themselves."""
        tensor = self._tensor(name)
        if tensor.dtype not in _FLOATS:
            raise CheckpointError(
                f"{name} has dtype {tensor.dtype}, and neither config.json nor the tensors beside it say what that "
                f"means; parameters are {', '.join(_FLOATS)} unless they are quantized"
            )
        return StoredTensor(tensor.dtype, self._bytes(tensor).reshape(*tensor.shape[:-1], -1), tensor.shape)

    def array(self, name: str) -> NDArray:
        """A tensor as it is, but for floats of more than 8 bits, which become float32; those of 8 bits are bytes.

        Raises as `shape` does.
        """
        tensor = self._tensor(name)
        if tensor.dtype in _FLOATS:
            return dequantize(self._bytes(tensor), tensor.dtype, math.prod(tensor.shape)).reshape(tensor.shape)
        return self._bytes(tensor).view(_DTYPES[tensor.dtype]).reshape(tensor.shape)

    @staticmethod
    def _bytes(tensor: _Tensor) -> ByteArray:
        size = math.prod(tensor.shape) * _DTYPES[tensor.dtype].itemsize
        tensor.data.madvise(mmap.MADV_DONTNEED)  # tensors that were read before leave the memory
        return np.frombuffer(tensor.data, np.uint8, size, tensor.offset_bytes)

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise CheckpointError(f"the checkpoint holds no parameter {name}")
        return self._tensors[name]


def _read_file(path: Path) -> dict[str, _Tensor]:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        raise CheckpointError(f"cannot read {path}: {error}") from error
    try:
        header_size = int.from_bytes(data[:8], "little")
        if header_size > min(_MAX_HEADER_BYTES, len(data) - 8):
            raise CheckpointError(f"a header of {header_size} bytes is announced, the file has {len(data)}")
        header = json.loads(data[8 : 8 + header_size])
        if not isinstance(header, dict):
            raise CheckpointError("the header is not a JSON object")
        header.pop("__metadata__", None)
        return {name: _read_tensor(data, 8 + header_size, name, entry) for name, entry in header.items()}
    except (CheckpointError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON
        raise CheckpointError(f"{path}: {error}: the file is damaged or cut short; fetch it again") from None


def _read_tensor(data: mmap.mmap, data_start: int, name: str, entry: Any) -> _Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise CheckpointError(f"the entry of {name} is malformed")
    if dtype not in _DTYPES:
        raise CheckpointError(f"{name} has dtype {dtype}; octavo reads {', '.join(_DTYPES)}")
    if not all(isinstance(size, int) and size > 0 for size in shape):
        raise CheckpointError(f"{name} has shape {shape}")
    if end - start != math.prod(shape) * _DTYPES[dtype].itemsize or not 0 <= start <= end <= len(data) - data_start:
        raise CheckpointError(f"{name} of shape {shape} and dtype {dtype} cannot lie in bytes {start} to {end}")
    return _Tensor(data, dtype, tuple(shape), data_start + start)
