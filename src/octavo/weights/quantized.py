"""QuantizedSource: the parameters of a Hugging Face folder whose linear layers are several tensors each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import StoredTensor
from octavo.quantization.codes import Packing
from octavo.weights.safetensors import SafetensorsSource
from octavo.weights.source import CheckpointError

_WEIGHT = "weight"
# What arrays of unexpected shapes and settings of unexpected types end in.
_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


class QuantizedSource:
    """A WeightSource over `files`, in which a layer's weight is what its tensors mean together by `packing`.

    A layer that has none of the packing's tensors is as it is: not all layers need be quantized.
    """

    def __init__(self, files: SafetensorsSource, packing: Packing) -> None:
        self._files = files
        self._packing = packing
        self._layers: dict[str, _Layer] = {}  # by the name of the weight
        self._names: list[str] = []
        name_by_part: dict[str, dict[str, str]] = {}
        for name in files.names():
            part = next((part for part in packing.parts if name.endswith(f".{part}")), None)
            if part is None:
                self._names.append(name)
            else:
                weight = f"{name.removesuffix(part)}{_WEIGHT}"
                name_by_part.setdefault(weight, {})[part] = name
        for weight, names in name_by_part.items():
            if weight in files:
                names[_WEIGHT] = weight
            else:
                self._names.append(weight)
            self._layers[weight] = _Layer(files, names)

    def names(self) -> list[str]:
        """See WeightSource."""
        return self._names

    def __contains__(self, name: str) -> bool:
        return name in self._layers or name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightSource."""
        if name not in self._layers:
            return self._files.shape(name)
        try:
            return self._packing.shape(self._layers[name])
        except _DAMAGED as error:
            raise _damaged(name, error) from None

    def stored(self, name: str) -> StoredTensor:
        """See WeightSource."""
        if name not in self._layers:
            return self._files.stored(name)
        try:
            matrix = self._packing.read(self._layers[name])
        except _DAMAGED as error:
            raise _damaged(name, error) from None
        if not np.isfinite(matrix.scales.scales).all():
            raise _damaged(name, ValueError("a scale is infinite or no number"))
        return StoredTensor(matrix.format, matrix.codes, matrix.codes.shape, matrix.scales)


class _Layer:
    """See quantization.codes.StoredLayer."""

    def __init__(self, files: SafetensorsSource, name_by_part: Mapping[str, str]) -> None:
        self._files = files
        self._names = name_by_part

    def __contains__(self, part: str) -> bool:
        return part in self._names

    def shape(self, part: str) -> tuple[int, ...]:
        return self._files.shape(self._name(part))

    def array(self, part: str) -> NDArray:
        return self._files.array(self._name(part))

    def _name(self, part: str) -> str:
        if part not in self._names:
            raise ValueError(f"there is no {part} beside {', '.join(sorted(self._names))}")
        return self._names[part]


def _damaged(name: str, error: Exception) -> CheckpointError:
    return CheckpointError(f"{name}: {error}: the file is damaged, or not of the format its configuration names")
