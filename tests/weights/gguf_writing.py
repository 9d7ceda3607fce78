"""Writes GGUF files with the gguf package's writer, from plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# An array, or the bytes [rows, bytes of a row] of a quantized one and its type.
Tensor = np.ndarray | tuple[np.ndarray, gguf.GGMLQuantizationType]


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> Path:
    """Write the file; whole numbers become uint32, other numbers float32, None is left out. Returns the path."""
    writer = gguf.GGUFWriter(path, metadata.get("general.architecture", "llama"))
    for key, value in metadata.items():
        if key == "general.architecture" or value is None:
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, tensor in (tensors or {}).items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
