"""A checkpoint's parameters on their way into a backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from octavo.backends.ops import Backend, StoredTensor


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters whose names begin with `prefix`, and the backend that packs them.

    A layer hands its tensors to the backend as they are stored, and the backend packs them from there: so a model needs
    no more memory while it loads than once it is loaded.
    """

    find_tensor: Callable[[str], StoredTensor]  # by the full name
    backend: Backend
    prefix: str = ""

    def at(self, name: str) -> Parameters:
        """The parameters of the part called `name`, as in `params.at("mlp").at("down_proj")`."""
        return dataclasses.replace(self, prefix=f"{self.prefix}{name}.")

    def stored(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        """Find one tensor; ValueError if its shape is not the one that the model's configuration calls for."""
        full_name = self.prefix + name
        tensor = self.find_tensor(full_name)
        if tensor.shape != shape:
            raise ValueError(
                f"{full_name} has shape {list(tensor.shape)}, and the model's configuration calls for {list(shape)}: "
                "the weights belong to another configuration"
            )
        return tensor
