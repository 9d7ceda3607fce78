"""Where config.json says how a checkpoint's weights are quantized; what it says there depends on the method."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.weights.fields import Fields

_NAMES = ("quantization_config", "compression_config")


def quantization_settings(config: Fields) -> Fields | None:
    """What config.json says; None where it says nothing. Raises CheckpointError for what is no object."""
    name = next((name for name in _NAMES if name in config), None)
    return None if name is None else Fields(config.get(name, dict), f"{config.place}: {name}")


def compressed_weights(settings: Fields) -> Iterator[Fields]:
    """Of compressed-tensors: how the weights of each group of layers are, of those that say it."""
    for name, group in settings.get("config_groups", dict, {}).items():
        if isinstance(group, dict) and isinstance(group.get("weights"), dict):
            yield Fields(group["weights"], f"{settings.place}: {name}")
