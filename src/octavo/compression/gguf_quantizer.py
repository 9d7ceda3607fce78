"""Makes a smaller GGUF file of a larger one, with the very bytes that llama.cpp's llama-quantize writes for tensors.

Tensors keep their GGUF names and the order of their rows, Llama's reordered Q and K among them: nothing is turned into
Hugging Face's order and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from octavo.quantization.gguf import dequantize
from octavo.quantization.gguf_rounding import quantize
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf_file import GGUFFile, GGUFTensor
from octavo.weights.gguf_writer import NewTensor, u32_entry, write_gguf
from octavo.weights.source import CheckpointError

FILE_TYPES = {"gguf-q4_0": ("Q4_0", 2), "gguf-q8_0": ("Q8_0", 7)}  # type of layers, and llama.cpp's number of the whole
_QUANTIZATION_VERSION = 2  # ggml's GGML_QNT_VERSION: since when the blocks are laid out as they are
_PRECISE = ("token_embd.weight", "output.weight")
_REPLACED = ("general.file_type", "general.quantization_version", "general.alignment")  # the last: files have 32
_NUMBERS_AT_ONCE = 1 << 20


def write_quantized_gguf(model: str, path: Path, file_format: str) -> None:
    """Write the .gguf file `model` to `path` in that format, a key of FILE_TYPES.

    Matrices of layers get its type, embedding and head Q8_0, vectors F32; what has the type already stays as it is.
    Metadata are carried over byte for byte but for those that name the format. Raises CheckpointError for a model that
    is no .gguf file or that octavo cannot run, ValueError for numbers or shapes that the format cannot hold,
    FileExistsError as write_gguf.
    """
    if not Path(model).is_file():
        raise CheckpointError(
            f"{file_format} is made of a .gguf file, and {model} is none: make one with llama.cpp's "
            "convert_hf_to_gguf.py --outtype bf16 first, or choose awq or int8"
        )
    open_checkpoint(model)  # refuses what octavo could not run
    source = GGUFFile(Path(model))
    layer_type, file_type = FILE_TYPES[file_format]
    entries = [source.entry(key) for key in source.metadata if key not in _REPLACED]
    entries.append(u32_entry("general.file_type", file_type))
    entries.append(u32_entry("general.quantization_version", _QUANTIZATION_VERSION))
    tensors = []
    for name, tensor in source.tensors.items():
        type_name = "F32" if len(tensor.shape) == 1 else "Q8_0" if name in _PRECISE else layer_type
        read_parts = partial(_quantized_parts, source, name, type_name)
        tensors.append(NewTensor(name, type_name, tensor.shape, read_parts))
    write_gguf(path, entries, tensors)


def _quantized_parts(source: GGUFFile, name: str, type_name: str) -> Iterator[memoryview]:
    """The bytes of a tensor, a few rows at a time."""
    tensor = source.tensors[name]
    data = source.bytes_of(tensor)
    if tensor.type_name == type_name:
        yield data
        return
    try:
        for values in _rows(tensor, data):
            yield quantize(values, type_name).data
    except ValueError as error:
        raise ValueError(f"tensor {name}: {error}") from None


def _rows(tensor: GGUFTensor, data: memoryview) -> Iterator[np.ndarray]:
    row_len = tensor.shape[-1]
    rows = np.frombuffer(data, np.uint8).reshape(tensor.num_elements // row_len, -1)
    step = max(1, _NUMBERS_AT_ONCE // row_len)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        yield dequantize(part.reshape(-1), tensor.type_name, len(part) * row_len).reshape(len(part), row_len)
