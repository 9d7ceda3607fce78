"""WeightSource: the parameters of a checkpoint by name, whichever file format they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from octavo.backends.ops import StoredTensor

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

    def stored(self, name: str) -> StoredTensor:
        """A parameter as it is stored, C-contiguous; nothing is read before its bytes are. Raises as `shape` does."""
        ...

    def __contains__(self, name: str) -> bool:
        """Whether there is a parameter of that name."""
        ...
