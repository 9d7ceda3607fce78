"""Thousands of damaged checkpoints: a model or one CheckpointError, and no more memory than the files have bytes for.

FUZZ_FILES and FUZZ_SEED say how many and which; a failure names the try, which the same seed makes again.
"""

from __future__ import annotations

import json
import os
import random
import resource
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError
from tests.quantization.test_quantized_layers import GOLDEN
from tests.weights.test_corruption import MUTATIONS
from tests.weights.tiny_model import hf_config, tiny_config, tiny_parameters, write_tiny_gguf

NUM_TRIES = int(os.environ.get("FUZZ_FILES", "2000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
HEADER_BYTES = 3000  # where most of what is read as anything but numbers lies
MOST_MIB = 200  # that reading some thousand damaged files of less than 1 MiB may add to the process
LAYER = "model.layers.0.self_attn.o_proj."


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[Path]]]:
    """What is opened, and the files of it that are damaged: a GGUF file, and a folder for each quantized format."""
    folder = tmp_path_factory.mktemp("fuzz")
    gguf = write_tiny_gguf(folder / "tiny.gguf", tiny_config("llama", num_layers=1))
    made: list[tuple[Path, list[Path]]] = [(gguf, [gguf])]
    config = tiny_config("llama", num_layers=1, head_dim=48)  # o_proj is as large as the golden layers
    for golden in sorted(GOLDEN.glob("*.safetensors")):
        tensors = tiny_parameters(config)
        del tensors[LAYER + "weight"]
        path = folder / golden.stem
        path.mkdir()
        save_file(tensors, path / "model-1.safetensors")
        (path / "model-2.safetensors").write_bytes(renamed(golden.read_bytes()))
        files = {name: "model-1.safetensors" for name in tensors} | {LAYER + "any": "model-2.safetensors"}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
        quantization = json.loads(golden.with_suffix(".json").read_text())
        (path / "config.json").write_text(json.dumps(hf_config(config, **quantization)))
        made.append((path, [path / "model-2.safetensors", path / "config.json"]))
    return made


def renamed(data: bytes) -> bytes:
    """The golden file, its layer called LAYER."""
    header_end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:header_end])
    names = {name: LAYER + name.removeprefix("layer.") for name in header if name.startswith("layer.")}
    encoded = json.dumps({new: header[name] for name, new in names.items()}).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data[header_end:]


def damage(data: bytes, number: int, rng: random.Random) -> bytes:
    """The file with one fault, mostly in its header."""
    end = min(HEADER_BYTES if rng.random() < 0.8 else len(data), len(data))
    mutate = MUTATIONS[number % len(MUTATIONS)]
    return bytes(mutate(bytearray(data[:end]), rng)) + data[end:]


def read_completely(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    for name in checkpoint.tensors.names():
        assert checkpoint.tensors.stored(name).to_float32().nbytes <= 8 * checkpoint.size_bytes


def test_damaged_files_are_refused_in_one_clear_way(checkpoints):
    for path, _ in checkpoints:
        read_completely(path)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    num_refusals = 0
    for number in range(NUM_TRIES):
        rng = random.Random(SEED * 1_000_003 + number)
        path, files = rng.choice(checkpoints)
        file = rng.choice(files)
        whole = file.read_bytes()
        file.write_bytes(damage(whole, number, rng))
        try:
            read_completely(path)
        except CheckpointError as error:
            num_refusals += 1
            assert 20 < len(str(error)) < 2000
        except Exception as error:
            raise AssertionError(f"try {number} of seed {SEED}, {file.name} of {path.name}") from error
        finally:
            file.write_bytes(whole)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    print(f"{num_refusals} of {NUM_TRIES} damaged files refused, the others read; {grown_mib:.0f} MiB more memory")
    assert num_refusals > NUM_TRIES // 4
    assert grown_mib < MOST_MIB
