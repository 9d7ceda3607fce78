"""Writes tests/quantization/golden: layers in quantized formats, and the numbers that each format's tool reads in them.

    python -m tools.make_golden_quantized

Runs in the golden environment, with compressed-tensors, bitsandbytes, autoawq and gptqmodel besides (`make golden`).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tools.quantized_layers import recipes

FOLDER = Path(__file__).parent.parent / "tests" / "quantization" / "golden"
SHAPE = (32, 192)


def main() -> None:
    """Write a file for each format."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, recipe in recipes(64).items():
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(SHAPE, generator=generator) * 0.05 + 0.01
        tensors, numbers = recipe.pack(weight)
        tensors = {f"layer.{part}": tensor.contiguous() for part, tensor in tensors.items()}
        save_file({**tensors, "numbers": numbers.float().contiguous()}, FOLDER / f"{name}.safetensors")
        (FOLDER / f"{name}.json").write_text(json.dumps({"quantization_config": recipe.config}, indent=1) + "\n")
        print(f"{name}: {numbers.dtype}, error {float((numbers.float() - weight).abs().mean()):.5f}")


if __name__ == "__main__":
    main()
