"""ModelHeader: the shape of a model and the formats of its parameters, from config.json or from a GGUF header alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from octavo.backends.native.packed_sizes import PackedMatrix
from octavo.backends.native.weight_kinds import choose_kind, keeps_codes
from octavo.config import ModelConfig
from octavo.planning.quantized_layers import QuantizedLayers, read_quantized_layers
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
    quantized: QuantizedLayers | None = None  # those that its format stands for

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
                are_layers_quantized=self.quantized is not None,
            )
            bytes_by_kind[kind] += self._packed(kind, formats[matrix], parts, has_bias=matrix in biased).num_bytes
        return dict(bytes_by_kind)

    def _packed(
        self, kind: str, formats: Sequence[str], shapes: Sequence[tuple[int, ...]], *, has_bias: bool
    ) -> PackedMatrix:
        """Parts that are stored in these formats as one matrix."""
        num_outputs, num_inputs = sum(shape[0] for shape in shapes), shapes[0][1]
        codes = self.quantized
        if codes is None or set(formats) != {codes.format} or not keeps_codes(codes.format, kind):
            has_minimum = kind == "int4" and set(formats) not in ({"Q4_0"}, {"MXFP4"})
            return PackedMatrix(kind, num_outputs, num_inputs, has_bias, has_minimum)
        return PackedMatrix(kind, num_outputs, num_inputs, has_bias, codes.has_zeros, codes.group_size, codes.has_order)


def read_header(path: Path) -> ModelHeader:
    """The header of a .gguf file, of a Hugging Face folder, or of a config.json by itself. Raises CheckpointError."""
    if path.suffix == ".gguf":
        return _read_gguf(path)
    folder = path.parent if path.name == "config.json" else path
    config = hugging_face.read_config(folder)
    fields = hugging_face.read_fields(folder / "config.json")
    dtype = fields.get("torch_dtype", str, fields.get("dtype", str, "float32"))  # as transformers takes it
    if dtype not in FORMAT_BY_DTYPE:
        raise CheckpointError(f"{fields.place}: weights of {dtype} are not supported, only floats are")
    quantized = read_quantized_layers(fields)

    def find_format(name: str) -> str:
        return quantized.format if quantized is not None and quantized.holds(name) else FORMAT_BY_DTYPE[dtype]

    return ModelHeader(folder.resolve().name, config, find_format, quantized)


def _read_gguf(path: Path) -> ModelHeader:
    file = GGUFFile(path)
    type_by_name = {hugging_face_name(name): tensor.type_name for name, tensor in file.tensors.items()}

    def find_format(name: str) -> str:
        if name not in type_by_name:
            raise CheckpointError(f"{path}: parameter {name} is missing: the file is incomplete; fetch it again")
        return type_by_name[name]

    return ModelHeader(path.stem, gguf_metadata.read_config(file), find_format)
