"""WeightSource: named float32 arrays, whichever file format they come from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

ROPE_FREQS = "rope_freqs.weight"  # optional, [head_dim / 2]: divisors of the inverse rotary frequencies


class CheckpointError(Exception):
    """A checkpoint that is missing, damaged or of a kind octavo cannot run. The message says which, and the remedy."""


class WeightSource(Protocol):
    """The parameters of a model under their Hugging Face names, in Hugging Face's shapes and row order."""

    def names(self) -> list[str]:
        """The names of all parameters."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a parameter. Raises CheckpointError if there is none of that name."""
        ...

    def load(self, name: str) -> Float32Array:
        """A parameter as a C-contiguous array; read-only where it can be the file itself. Raises as `shape` does."""
        ...

    def __contains__(self, name: str) -> bool:
        """Whether there is a parameter of that name."""
        ...
