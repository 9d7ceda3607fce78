"""The parameters of a GGUF file under Hugging Face names.

The work of llama.cpp's convert_hf_to_gguf.py is undone here: names, dimension order, and the row order of the rotated
projections of Llama.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import ByteArray, StoredTensor
from octavo.config import ModelConfig
from octavo.weights.gguf_file import GGUFFile, GGUFTensor
from octavo.weights.gguf_names import hugging_face_name
from octavo.weights.source import CheckpointError


class GGUFSource:
    """The parameters of a GGUF file as a WeightSource."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self._file = file
        self._tensors = {hugging_face_name(name): tensor for name, tensor in file.tensors.items()}
        # The converter reorders the rows of Llama's rotated projections, head by head.
        self._reordered = {}
        if config.architecture == "llama":
            self._reordered = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    def names(self) -> list[str]:
        """See WeightSource."""
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightSource."""
        return self._tensor(name).shape

    def stored(self, name: str) -> StoredTensor:
        """See WeightSource."""
        tensor = self._tensor(name)
        data = np.frombuffer(self._file.bytes_of(tensor), np.uint8)
        for projection, num_heads in self._reordered.items():
            if f".{projection}." in name:
                data = split_halves(data.reshape(tensor.shape[0], -1), num_heads)
        return StoredTensor(tensor.type_name, data.reshape(*tensor.shape[:-1], -1), tensor.shape)

    def _tensor(self, name: str) -> GGUFTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._file.path} holds no parameter {name}")
        return self._tensors[name]


def rows_in_pairs(num_rows: int, num_heads: int) -> NDArray[np.intp]:
    """Which row of Hugging Face's order each row in GGUF's is: what split_halves undoes."""
    halves = np.arange(num_rows).reshape(num_heads, 2, -1)
    return halves.swapaxes(1, 2).reshape(num_rows)


def split_halves(rows: ByteArray, num_heads: int) -> ByteArray:
    """Put the rows of each head, [num_heads * D, bytes], back from pairs side by side to first half, second half.

    GGUF keeps a head's rows as 0, D/2, 1, D/2 + 1, ...: the order in which rotary embedding takes neighbours for
    pairs. `num_heads` is the number of heads of this very projection: of K there may be fewer than of Q.
    """
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
