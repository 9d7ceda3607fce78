"""Makes a GGUF file of another, or of a Hugging Face folder, with the very bytes that llama.cpp's tools write.

Of a GGUF file, tensors keep their names and the order of their rows, Llama's reordered Q and K among them: nothing is
turned into Hugging Face's order and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array, StoredTensor
from octavo.compression.gguf_conversion import metadata_entries, rope_divisors, row_order
from octavo.quantization.gguf_rounding import quantize
from octavo.weights.checkpoint import Checkpoint, open_checkpoint
from octavo.weights.gguf_file import GGUFFile, GGUFTensor
from octavo.weights.gguf_names import gguf_name
from octavo.weights.gguf_writer import NewTensor, entry, write_gguf
from octavo.weights.parameters import parameters
from octavo.weights.source import ROPE_FREQS

FILE_TYPES = {"gguf-q4_0": ("Q4_0", 2), "gguf-q8_0": ("Q8_0", 7)}  # type of layers, and llama.cpp's number of the whole
_QUANTIZATION_VERSION = 2  # ggml's GGML_QNT_VERSION: since when the blocks are laid out as they are
_PRECISE = ("token_embd.weight", "output.weight")
_REPLACED = ("general.file_type", "general.quantization_version", "general.alignment")  # the last: files have 32
_NUMBERS_AT_ONCE = 1 << 20


class _Source(NamedTuple):
    """A tensor to make one of."""

    shape: tuple[int, ...]
    read: Callable[[], StoredTensor]
    order: NDArray[np.intp] | None = None  # of its rows; None: as they are


def write_quantized_gguf(model: str, path: Path, file_format: str) -> None:
    """Write `model` to `path` in that format, a key of FILE_TYPES.

    Matrices of layers get its type, embedding and head Q8_0, vectors F32. Of a .gguf file what has the type already
    stays as it is, and metadata are carried over byte for byte but for those that name the format; a folder is
    described in GGUF's terms. Raises CheckpointError for a model that octavo cannot run or GGUF cannot describe,
    ValueError for numbers or shapes that the format cannot hold, FileExistsError as write_gguf.
    """
    checkpoint = open_checkpoint(model)  # refuses what octavo could not run
    if Path(model).is_file():
        entries, sources = _of_file(GGUFFile(Path(model)))
    else:
        entries, sources = metadata_entries(checkpoint), _of_folder(checkpoint)
    layer_type, file_type = FILE_TYPES[file_format]
    entries.append(entry("general.file_type", file_type))
    entries.append(entry("general.quantization_version", _QUANTIZATION_VERSION))
    tensors = []
    for name, source in sources.items():
        type_name = "F32" if len(source.shape) == 1 else "Q8_0" if name in _PRECISE else layer_type
        tensors.append(NewTensor(name, type_name, source.shape, partial(_quantized_parts, name, source, type_name)))
    write_gguf(path, entries, tensors)


def _of_file(file: GGUFFile) -> tuple[list[bytes], dict[str, _Source]]:
    """Metadata and tensors of a GGUF file."""
    sources = {name: _Source(tensor.shape, partial(_stored, file, tensor)) for name, tensor in file.tensors.items()}
    return [file.entry(key) for key in file.metadata if key not in _REPLACED], sources


def _stored(file: GGUFFile, tensor: GGUFTensor) -> StoredTensor:
    data = np.frombuffer(file.bytes_of(tensor), np.uint8)
    return StoredTensor(tensor.type_name, data.reshape(*tensor.shape[:-1], -1), tensor.shape)


def _of_folder(checkpoint: Checkpoint) -> dict[str, _Source]:
    """Tensors of a Hugging Face folder, by their GGUF names."""
    config = checkpoint.config
    sources = {
        gguf_name(name): _Source(shape, partial(checkpoint.tensors.stored, name), row_order(config, name, shape[0]))
        for name, shape in parameters(config)
    }
    divisors = rope_divisors(config)
    if divisors is not None:
        sources[ROPE_FREQS] = _Source(
            divisors.shape, lambda: StoredTensor("F32", divisors.view(np.uint8), divisors.shape)
        )
    return sources


def _quantized_parts(name: str, source: _Source, type_name: str) -> Iterator[memoryview]:
    """The bytes of a tensor, a few rows at a time."""
    tensor = source.read()
    if tensor.format == type_name and source.order is None:
        yield tensor.data.data
        return
    try:
        for values in _rows(tensor, source.order):
            yield quantize(values, type_name).data
    except ValueError as error:
        raise ValueError(f"tensor {name}: {error}") from None


def _rows(tensor: StoredTensor, order: NDArray[np.intp] | None) -> Iterator[Float32Array]:
    """The numbers in this order of rows, some rows at a time where the format lets them."""
    order = np.arange(tensor.shape[0]) if order is None else order
    if tensor.scales is not None or len(tensor.shape) == 1:
        yield tensor.to_float32()[order]
        return
    row_len = tensor.shape[1]
    step = max(1, _NUMBERS_AT_ONCE // row_len)
    for start in range(0, len(order), step):
        rows = tensor.data[order[start : start + step]]
        yield StoredTensor(tensor.format, rows, (len(rows), row_len)).to_float32()
