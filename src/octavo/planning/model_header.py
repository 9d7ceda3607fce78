"""ModelHeader: the shape of a model and the formats of its parameters, from config.json or from a GGUF header alone."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from octavo.backends.native.packed_sizes import packed_bytes
from octavo.backends.native.weight_kinds import choose_kind
from octavo.config import ModelConfig
from octavo.weights import gguf_metadata, hugging_face
from octavo.weights.gguf_file import GGUFFile
from octavo.weights.gguf_names import hugging_face_name
from octavo.weights.parameters import parameters
from octavo.weights.source import CheckpointError

FLOAT32_BYTES = 4
FORMAT_BY_DTYPE = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
# Matrices of one input that become one, see layers.linear.
MERGED = {name: "qkv_proj" for name in ("q_proj", "k_proj", "v_proj")} | {
    name: "gate_up_proj" for name in ("gate_proj", "up_proj")
}


class ModelHeader(NamedTuple):
    """What a model says about itself before any of its numbers is read."""

    name: str
    config: ModelConfig
    find_format: Callable[[str], str]  # how a parameter is stored, by its Hugging Face name

    @property
    def num_parameters(self) -> int:
        """How many numbers the model has."""
        return sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for _, shape in parameters(self.config))

    def weight_bytes_by_kind(self, *, dtype: str, quantization: str | None) -> dict[str, int]:
        """Bytes that the weights will take, as the native backend packs them; the options are EngineConfig's."""
        shapes, formats, biased = (
            defaultdict[str, list[tuple[int, ...]]](list),
            defaultdict[str, list[str]](list),
            set(),
        )
        for name, shape in parameters(self.config):
            module, _, part = name.rpartition(".")
            parent, _, leaf = module.rpartition(".")
            matrix = f"{parent}.{MERGED.get(leaf, leaf)}"
            if part == "bias":
                biased.add(matrix)
            else:
                shapes[matrix].append(shape)
                formats[matrix].append(self.find_format(name))
        bytes_by_kind = Counter[str]()
        for matrix, parts in shapes.items():
            num_outputs = sum(shape[0] for shape in parts)
            if len(parts[0]) == 1:
                bytes_by_kind["float32"] += FLOAT32_BYTES * num_outputs
                continue
            kind = choose_kind(
                formats[matrix],
                dtype=dtype,
                quantization=quantization,
                is_vocabulary=matrix.endswith(("embed_tokens", "lm_head")),
            )
            bytes_by_kind[kind] += packed_bytes(
                kind,
                formats[matrix],
                num_outputs=num_outputs,
                num_inputs=parts[0][1],
                has_bias=matrix in biased,
            )
        return dict(bytes_by_kind)


def read_header(path: Path) -> ModelHeader:
    """The header of a .gguf file, of a Hugging Face folder, or of a config.json by itself. Raises CheckpointError."""
    if path.suffix == ".gguf":
        return _read_gguf(path)
    folder = path.parent if path.name == "config.json" else path
    config = hugging_face.read_config(folder)
    fields = json.loads((folder / "config.json").read_text("utf-8"))
    dtype = str(fields.get("torch_dtype") or fields.get("dtype") or "float32")  # as transformers takes it
    if dtype not in FORMAT_BY_DTYPE:
        raise CheckpointError(f"{folder / 'config.json'}: weights of {dtype} are not supported, only floats are")
    return ModelHeader(folder.resolve().name, config, lambda name: FORMAT_BY_DTYPE[dtype])


def _read_gguf(path: Path) -> ModelHeader:
    file = GGUFFile(path)
    type_by_name = {hugging_face_name(name): tensor.type_name for name, tensor in file.tensors.items()}

    def find_format(name: str) -> str:
        if name not in type_by_name:
            raise CheckpointError(f"{path}: parameter {name} is missing: the file is incomplete; fetch it again")
        return type_by_name[name]

    return ModelHeader(path.stem, gguf_metadata.read_config(file), find_format)
