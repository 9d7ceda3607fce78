"""Writes a GGUF model as a Hugging Face folder, so that transformers need not convert it at each start.

.peers/transformers/bin/python -m benchmarks.peers.make_transformers MODEL.F32.gguf FOLDER [--dtype bfloat16]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    """Convert the model that the command line names and print the folder's path."""
    parser = argparse.ArgumentParser(description="Write a GGUF model as a Hugging Face folder.")
    parser.add_argument("source", type=Path, help="a .gguf file")
    parser.add_argument("folder", type=Path, help="where the new model goes")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    dtype = getattr(torch, arguments.dtype)
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=dtype)
    # A model that was read from GGUF refuses to be saved, so its weights go into one made from its shape.
    shape = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_config(shape, dtype=dtype)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(arguments.folder)
    print(arguments.folder)


if __name__ == "__main__":
    main()
