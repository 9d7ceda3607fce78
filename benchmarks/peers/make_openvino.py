"""Writes an OpenVINO model with int8 weights: what `optimum-cli export openvino --weight-format int8` writes, offline.

    .peers/openvino/bin/python -m benchmarks.peers.make_openvino MODEL.F16.gguf FOLDER

OpenVINO GenAI reads the GGUF file and saves it as its own format; NNCF then gives each output channel of each matrix a
scale and a zero point, OpenVINO's default for int8. Runs in the environment that setup.sh makes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import nncf
import openvino
import openvino_genai


def main() -> None:
    """Convert the model that the command line names and print the folder's path."""
    parser = argparse.ArgumentParser(description="Write an OpenVINO model with int8 weights.")
    parser.add_argument("source", type=Path, help="a .gguf file of 16-bit floats")
    parser.add_argument("folder", type=Path, help="where the new model goes")
    arguments = parser.parse_args()
    convert(arguments.source.resolve(), arguments.folder)
    print(arguments.folder)


def convert(source: Path, folder: Path) -> None:
    """Write the model and tokenizer of `source` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch_name:
        scratch = Path(scratch_name)
        (scratch / source.name).symlink_to(source)  # GenAI saves its model next to the GGUF file
        openvino_genai.LLMPipeline(scratch / source.name, "CPU", enable_save_ov_model=True)
        model = openvino.Core().read_model(scratch / "openvino_model.xml")
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        openvino.save_model(model, folder / "openvino_model.xml")
        for path in scratch.glob("openvino_*tokenizer.*"):
            shutil.move(path, folder / path.name)


if __name__ == "__main__":
    main()
