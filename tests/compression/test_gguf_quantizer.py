"""Quantized GGUF files: the gguf package reads them, their blocks are its own, the metadata are the source's."""

from __future__ import annotations

import subprocess
import sys

import gguf
import numpy as np
import pytest

from octavo.compression import gguf_quantizer
from octavo.compression.gguf_quantizer import write_quantized_gguf
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf_file import GGUFFile
from tests.weights.tiny_model import tiny_config, write_tiny_gguf

METADATA = {
    "general.file_type": 1,
    "general.alignment": 32,
    "general.name": "Tiny 안녕",
    "general.languages": ["en", "ko"],
    "general.quantized": False,
    "tokenizer.chat_template": "{{ messages }}",
}
CHANGED = {"general.alignment", "general.file_type", "general.quantization_version"}


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def original(request, tmp_path_factory):
    config = tiny_config(request.param, hidden_size=64)
    path = tmp_path_factory.mktemp("original") / "tiny.gguf"
    norm = np.linspace(0.5, 2, 64).astype(np.float16)  # vectors become F32 whatever they were
    return write_tiny_gguf(path, config, metadata=METADATA, tensors={"output_norm.weight": norm})


def fields(path):
    """Type and value of each entry, as the gguf package reads them."""
    reader = gguf.GGUFReader(path)
    return {f.name: (f.types, f.contents()) for f in reader.fields.values() if not f.name.startswith("GGUF.")}


@pytest.mark.parametrize(
    ("file_format", "layer_type", "file_type"), [("gguf-q4_0", "Q4_0", 2), ("gguf-q8_0", "Q8_0", 7)]
)
def test_blocks_and_metadata(original, tmp_path, monkeypatch, file_format, layer_type, file_type):
    monkeypatch.setattr(gguf_quantizer, "_NUMBERS_AT_ONCE", 1000)  # so that matrices come in several parts
    out = tmp_path / "out.gguf"
    write_quantized_gguf(str(original), out, file_format)
    ours, theirs = fields(out), fields(original)
    assert {n: v for n, v in ours.items() if n not in CHANGED} == {n: v for n, v in theirs.items() if n not in CHANGED}
    assert (ours["general.file_type"][1], ours["general.quantization_version"][1]) == (file_type, 2)
    assert "general.alignment" not in ours
    sources = {tensor.name: tensor for tensor in gguf.GGUFReader(original).tensors}
    tensors = gguf.GGUFReader(out).tensors
    assert [tensor.name for tensor in tensors] == [*sources]
    for tensor in tensors:
        is_precise = tensor.name in ("token_embd.weight", "output.weight")
        expected = "F32" if len(tensor.shape) == 1 else "Q8_0" if is_precise else layer_type
        assert tensor.tensor_type.name == expected
        assert tensor.shape.tolist() == sources[tensor.name].shape.tolist()
        values = np.asarray(sources[tensor.name].data, np.float32)
        np.testing.assert_array_equal(tensor.data, gguf.quantize(values, tensor.tensor_type), err_msg=tensor.name)


def test_octavo_opens_it_as_the_same_model(original, tmp_path):
    out = tmp_path / "out.gguf"
    write_quantized_gguf(str(original), out, "gguf-q4_0")
    before, after = open_checkpoint(original), open_checkpoint(out)
    assert (after.config, after.eos_token_ids) == (before.config, before.eos_token_ids)
    assert after.tokenizer_spec == before.tokenizer_spec
    for name in before.tensors.names():  # a row of Q or K in a wrong place would be as far away as any other
        exact, near = before.tensors.stored(name).to_float32(), after.tensors.stored(name).to_float32()
        assert np.abs(near - exact).max() < 0.6, name


def test_what_has_the_type_stays_as_it_is(original, tmp_path):
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    write_quantized_gguf(str(original), first, "gguf-q4_0")
    write_quantized_gguf(str(first), second, "gguf-q4_0")
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_left_of_what_cannot_be_written(tmp_path):
    config = tiny_config("llama")
    broken = np.ones((32, 32), np.float32)
    broken[3, 3] = np.inf
    source = write_tiny_gguf(tmp_path / "tiny.gguf", config, tensors={"blk.1.attn_q.weight": broken})
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match=r"tensor blk.1.attn_q.weight: a number is infinite"):
        write_quantized_gguf(str(source), tmp_path / "out" / "new.gguf", "gguf-q4_0")
    assert not [*(tmp_path / "out").iterdir()]
    before = source.read_bytes()
    with pytest.raises(FileExistsError, match="exists; name another file"):
        write_quantized_gguf(str(source), source, "gguf-q4_0")
    assert source.read_bytes() == before


def test_the_command(original, tmp_path):
    def quantize(name, file_format):
        arguments = ["quantize", str(original), str(tmp_path / name), "--format", file_format]
        program = "from octavo.cli import main; main()"
        return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)

    written = quantize("new.gguf", "gguf-q4_0")
    assert written.returncode == 0 and "octavo serve" in written.stdout
    assert GGUFFile(tmp_path / "new.gguf").tensors["blk.0.ffn_down.weight"].type_name == "Q4_0"
    again = quantize("new.gguf", "gguf-q4_0")
    assert again.returncode == 1 and "exists; name another file" in again.stderr
    assert quantize("other.gguf", "gguf-q5_0").returncode == 2
