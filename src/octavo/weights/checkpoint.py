"""Checkpoint: a model on disk, opened; nothing of it is in memory until it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo.config import ModelConfig
from octavo.weights import gguf_metadata, hugging_face
from octavo.weights.gguf import GGUFSource
from octavo.weights.gguf_file import GGUFFile
from octavo.weights.parameters import check_parameters
from octavo.weights.quantization_config import read_packing
from octavo.weights.quantized import QuantizedSource
from octavo.weights.safetensors import SafetensorsSource
from octavo.weights.sampling_defaults import SamplingDefaults
from octavo.weights.source import CheckpointError, WeightSource
from octavo.weights.tokenizer_spec import TokenizerSpec

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.gguf)")  # ./model and models/x.gguf are paths, there or not
_PACKED = (".qweight", ".weight_packed")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a model's files say, whatever their format."""

    name: str  # for display: of the file without its ending, of the folder, or of the Hugging Face repository
    config: ModelConfig
    tensors: WeightSource
    quantization: str | None  # what the weights are quantized by in the files, as --quantization names it; None: floats
    eos_token_ids: tuple[int, ...]  # any of them ends an answer
    size_bytes: int  # of the files that hold the parameters
    read_sampling_defaults: Callable[[], SamplingDefaults]
    read_vocab_size: Callable[[], int]
    read_tokenizer_spec: Callable[[], TokenizerSpec]

    @property
    def are_layers_quantized(self) -> bool:
        """Whether linear layers are in a format that leaves embedding and head as floats."""
        return self.quantization not in (None, "gguf")

    @property
    def vocab_size(self) -> int:
        """How many token ids the tokenizer knows, found without building it. The embedding may have more rows."""
        return self.read_vocab_size()

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """What its makers recommend for the parameters that a request leaves open."""
        return self.read_sampling_defaults()

    @property
    def tokenizer_spec(self) -> TokenizerSpec:
        """What engine.tokenizer builds the tokenizer from; read each time, as it is large and needed once."""
        return self.read_tokenizer_spec()


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a .gguf file, a Hugging Face folder, or a Hugging Face repository, which is downloaded first.

    Raises CheckpointError if there is nothing to open, or nothing that octavo can run; the message says what it found,
    what is supported and what to do.
    """
    local = Path(path)
    if local.is_file():
        checkpoint = _open_gguf(local)
    elif local.is_dir():
        checkpoint = _open_folder(local, local.resolve().name)
    elif isinstance(path, str) and _HUB_NAME.fullmatch(path):
        checkpoint = _open_folder(_download(path), path)
    else:
        raise CheckpointError(
            f"there is no {path}: give a .gguf file, a Hugging Face folder or the name of a Hugging Face repository"
        )
    _check_config(checkpoint)
    check_parameters(checkpoint.config, checkpoint.tensors)
    return checkpoint


def _open_gguf(path: Path) -> Checkpoint:
    file = GGUFFile(path)
    config = gguf_metadata.read_config(file)
    return Checkpoint(
        name=path.stem,
        config=config,
        tensors=GGUFSource(file, config),
        quantization="gguf" if any(t.type_name not in ("F32", "F16", "BF16") for t in file.tensors.values()) else None,
        eos_token_ids=gguf_metadata.read_eos_token_ids(file),
        size_bytes=path.stat().st_size,
        read_sampling_defaults=partial(gguf_metadata.read_defaults, file),
        read_vocab_size=partial(gguf_metadata.read_vocab_size, file),
        read_tokenizer_spec=partial(gguf_metadata.read_tokenizer_spec, file),
    )


def _open_folder(folder: Path, name: str) -> Checkpoint:
    if not (folder / "config.json").exists():
        found = ", ".join(sorted(path.name for path in folder.glob("*.gguf"))) or "no .gguf file either"
        raise CheckpointError(f"{folder} holds no config.json; to open a .gguf file, name the file itself ({found})")
    config = hugging_face.read_config(folder)
    files = hugging_face.weight_files(folder)
    tensors = SafetensorsSource(files)
    packing = read_packing(hugging_face.read_fields(folder / "config.json"))
    if packing is None and any(name.endswith(_PACKED) for name in tensors.names()):
        raise CheckpointError(
            f"{folder} holds packed weights and its config.json no quantization_config, which would say how they are "
            "packed; fetch it again"
        )
    return Checkpoint(
        name=name,
        config=config,
        tensors=tensors if packing is None else QuantizedSource(tensors, packing[1]),
        quantization=None if packing is None else packing[0],
        eos_token_ids=hugging_face.read_eos_token_ids(folder),
        size_bytes=sum(file.stat().st_size for file in files),
        read_sampling_defaults=partial(hugging_face.read_defaults, folder),
        read_vocab_size=partial(hugging_face.read_vocab_size, folder),
        read_tokenizer_spec=partial(hugging_face.read_tokenizer_spec, folder),
    )


def _download(repository: str) -> Path:
    """The folder of a Hugging Face repository, fetched into the hub's own cache."""
    import huggingface_hub  # takes a third of a second, which opening local files should not pay

    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # its errors, its HTTP client's and the system's have no base class of their own
        raise CheckpointError(
            f"there is no file or folder {repository}, and the Hugging Face repository of that name cannot be fetched: "
            f"{error}; check the name and the connection, or fetch it elsewhere and give the folder"
        ) from error


def _check_config(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    if config.num_heads % config.num_kv_heads:
        raise CheckpointError(f"{config.num_heads} heads cannot share {config.num_kv_heads} KV heads evenly")
    if config.head_dim % 2:
        raise CheckpointError(f"a head size of {config.head_dim} cannot be rotated: it must be even")
