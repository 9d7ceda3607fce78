"""Writes one GGUF model in other precisions, so that every engine runs the same weights.

    python -m benchmarks.peers.make_models SOURCE.gguf FOLDER [--types F32 F16 BF16 Q8_0 Q4_0 Q4_1]

Each matrix of SOURCE is widened to float32 and rounded to the type asked for; vectors stay float32. In the 4-bit files
the embedding (in a tied model the output layer too) is Q8_0, as llama.cpp's own quantizer keeps it near 8 bits.
Rounding and file format are the `gguf` package's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
EMBEDDINGS = ("token_embd.weight", "output.weight")
# Written by GGUFWriter itself, or about the source's precision.
SKIPPED_KEYS = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def main() -> None:
    """Write the files that the command line asks for and print their paths."""
    parser = argparse.ArgumentParser(description="Write a GGUF model in other precisions.")
    parser.add_argument("source", type=Path, help="a .gguf file")
    parser.add_argument("folder", type=Path, help="where the new files go")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    source = gguf.GGUFReader(arguments.source)
    stem = arguments.source.name.split(".Q")[0].removesuffix(".gguf")
    for type_name in arguments.types:
        path = arguments.folder / f"{stem}.{type_name}.gguf"
        write_model(source, path, type_name)
        print(path)


def write_model(source: gguf.GGUFReader, path: Path, type_name: str) -> None:
    """Write the tensors and metadata of `source` to `path`, its matrices as `type_name`."""
    writer = gguf.GGUFWriter(path, source.fields["general.architecture"].contents())
    copy_metadata(source, writer)
    writer.add_file_type(gguf.LlamaFileType[file_type_name(type_name)])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in source.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        target = gguf.GGMLQuantizationType[tensor_type_name(tensor, type_name)]
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, target), raw_dtype=target)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_metadata(source: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    """Copy the model's shape and its tokenizer."""
    for name, field in source.fields.items():
        if name.startswith(SKIPPED_KEYS):
            continue
        value_type, *sub_types = field.types
        writer.add_key_value(name, field.contents(), value_type, sub_type=sub_types[0] if sub_types else None)


def file_type_name(type_name: str) -> str:
    """The name in LlamaFileType of a file whose matrices are `type_name`."""
    return "ALL_F32" if type_name == "F32" else f"MOSTLY_{type_name}"


def tensor_type_name(tensor: gguf.ReaderTensor, type_name: str) -> str:
    """What `tensor` becomes in a file of `type_name`."""
    if len(tensor.shape) == 1:
        return "F32"
    if tensor.name in EMBEDDINGS and type_name.startswith("Q4"):
        return "Q8_0"
    return type_name


if __name__ == "__main__":
    main()
