"""Writes a whole checkpoint in one of the formats of tools/quantized_layers.py, rounded to the nearest.

    python -m tools.make_quantized_checkpoint FOLDER OUT --format gptq-4 [--group-size 64]

FOLDER is a Hugging Face folder of floats; head, embedding and norms stay as they are. Runs in the golden environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from tools.quantized_layers import Tensors, recipes


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description="Write a quantized checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--format", required=True, choices=sorted(recipes(32)))
    parser.add_argument("--group-size", type=int, default=64)
    args = parser.parse_args()
    recipe = recipes(args.group_size)[args.format]
    args.out.mkdir(parents=True)
    for path in args.folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, args.out)
    tensors: Tensors = {}
    for name, tensor in load_file(args.folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            packed, _ = recipe.pack(tensor.float())
            tensors |= {f"{name.removesuffix('weight')}{part}": values.contiguous() for part, values in packed.items()}
        elif name != "lm_head.weight":
            tensors[name] = tensor
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((args.folder / "config.json").read_text())
    config["quantization_config"] = recipe.config
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
