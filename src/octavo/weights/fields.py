"""Fields: named values that a checkpoint says about itself, read with their types checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from octavo.weights.source import CheckpointError

T = TypeVar("T")


class Fields:
    """The metadata of a file. A value of None counts as absent; an absent field without a default is an error.

    Every method raises CheckpointError, naming file, field and value, for what is absent or of the wrong kind.
    """

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self.place = place

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def under(self, prefix: str) -> Fields:
        """The fields whose names begin with `prefix`, without it."""
        values = {name.removeprefix(prefix): v for name, v in self._values.items() if name.startswith(prefix)}
        return Fields(values, f"{self.place}: {prefix}*")

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The value, which must be of that type."""
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise CheckpointError(f"{self.place}: {name} is missing: the checkpoint is damaged or incomplete")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"{self.place}: {name} is {value!r:.80}; it must be of type {kind.__name__}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.get(name, int, default)
        if value < 1:
            raise CheckpointError(f"{self.place}: {name} is {value}; it must be at least 1")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        if isinstance(self._values.get(name), int):
            return float(self.count(name))
        value = self.get(name, float, default)
        if not (math.isfinite(value) and value > 0.0):
            raise CheckpointError(f"{self.place}: {name} is {value}; it must be a finite number above 0")
        return value

    def token_id(self, name: str, num_tokens: int) -> int | None:
        """The id of a token of the vocabulary; None if the field is absent."""
        if name not in self:
            return None
        value = self.get(name, int)
        if not 0 <= value < num_tokens:
            raise CheckpointError(f"{self.place}: {name} is {value}; the vocabulary has {num_tokens} tokens")
        return value
