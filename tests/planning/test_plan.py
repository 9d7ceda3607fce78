"""octavo plan: from a header alone, and as the engine and the scheduler will have it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from octavo.backends.native.backend import NativeBackend
from octavo.backends.native.packed_sizes import PackedMatrix
from octavo.backends.native.weight_kinds import keeps_codes
from octavo.bench.lengths import Lengths
from octavo.bench.traces import TracedRequest
from octavo.bench.workload import RandomWorkload
from octavo.cli.plan import parse_bytes
from octavo.config import BLOCK_SIZE, EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.models.registry import build_model
from octavo.planning.capacity import BlocksHeld
from octavo.planning.model_header import read_header
from octavo.planning.plan import Plan, make_plan
from octavo.planning.quantized_layers import read_quantized_layers
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.hugging_face import read_fields
from octavo.weights.quantization_config import read_packing
from octavo.weights.quantized import QuantizedSource
from octavo.weights.safetensors import SafetensorsSource
from octavo.weights.source import CheckpointError
from tests.core.engine_requests import make_request, make_tokens
from tests.weights.gguf_writing import Tensor
from tests.weights.tiny_model import gguf_tensors, tiny_config, tiny_parameters, write_tiny_gguf

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
PRECISIONS: list[dict[str, Any]] = [
    {"dtype": "auto"},
    {"dtype": "float32"},
    {"dtype": "bfloat16"},
    {"dtype": "auto", "quantization": "int8"},
    {"dtype": "auto", "quantization": "int4"},
]
LENGTHS = [("lognormal:60,0.7", "lognormal:60,0.6"), ("8", "uniform:1,200")]
PROGRAM = """
import sys
from octavo.cli import main
sys.argv = ["octavo", "plan", {model!r}, "--memory", "64MiB", "--input-len", "40", "--output-len", "8"]
try:
    main()
except SystemExit as end:
    assert not end.code, end
"""


def quantized(config: Any, type_name: str, other: str) -> dict[str, Tensor | None]:
    """The tiny model's matrices in one format, V's in another."""
    tensors: dict[str, Tensor | None] = {}
    for name, values in gguf_tensors(config, tiny_parameters(config)).items():
        assert isinstance(values, np.ndarray)
        kind = gguf.GGMLQuantizationType[other if "attn_v" in name else type_name]
        tensors[name] = (gguf.quantize(values, kind), kind) if values.ndim == 2 else values
    return tensors


def bytes_once_loaded(path: Path, **precision: Any) -> dict[str, int]:
    checkpoint, backend = open_checkpoint(path), NativeBackend(1, **precision)
    build_model(checkpoint.config, checkpoint.tensors, backend, 16)
    return dict(backend.weight_bytes_by_kind)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_weights_take_what_they_take_once_loaded(name, precision):
    header = read_header(GOLDEN / name / "config.json")
    planned = header.weight_bytes_by_kind(**{"quantization": None} | precision)
    assert planned == bytes_once_loaded(GOLDEN / name, **precision)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("type_name", "other"), [("Q4_0", "Q4_0"), ("Q4_1", "Q4_0"), ("Q4_0", "Q8_0"), ("F16", "Q5_0")]
)
def test_so_do_those_of_a_gguf_file(tmp_path: Path, type_name, other, tied):
    config = tiny_config("qwen2", tie_word_embeddings=tied)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", config, tensors=quantized(config, type_name, other))
    planned = read_header(path).weight_bytes_by_kind(dtype="auto", quantization=None)
    assert planned == bytes_once_loaded(path)


def test_a_config_json_without_anything_else_is_enough(tmp_path: Path):
    shutil.copy(GOLDEN / "llama" / "config.json", tmp_path)
    header = read_header(tmp_path / "config.json")
    assert header == read_header(tmp_path)._replace(find_format=header.find_format)
    assert header.config == open_checkpoint(GOLDEN / "llama").config


def test_what_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="architecture"):
        read_header(tmp_path)
    config = (GOLDEN / "llama" / "config.json").read_text().replace("float32", "float8_e4m3fn")
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match="float8_e4m3fn are not supported"):
        read_header(tmp_path)


GOLDEN_LAYERS = Path(__file__).parents[1] / "quantization" / "golden"
EXACT = ("awq", "gptq", "w4", "w8", "nf4", "fp4", "mxfp4")


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN_LAYERS.glob("*.json") if p.stem.startswith(EXACT)))
def test_a_quantized_layer_takes_what_it_takes_once_loaded(name):
    fields = read_fields(GOLDEN_LAYERS / f"{name}.json")
    packing = read_packing(fields)
    assert packing is not None
    source = QuantizedSource(SafetensorsSource([GOLDEN_LAYERS / f"{name}.safetensors"]), packing[1])
    backend = NativeBackend(1)
    backend.load_weight([source.stored("layer.weight")])
    [(kind, num_bytes)] = backend.weight_bytes_by_kind.items()
    layers = read_quantized_layers(fields)
    assert (
        layers is not None and layers.holds("model.layers.0.mlp.up_proj.weight") and not layers.holds("lm_head.weight")
    )
    _, group_size, has_zeros, has_order, _ = layers
    num_outputs, num_inputs = source.shape("layer.weight")
    planned = PackedMatrix(kind, num_outputs, num_inputs, False, has_zeros, group_size, has_order)
    assert keeps_codes(layers.format, kind)
    assert planned.num_bytes == num_bytes


def test_quantized_layers_make_a_model_smaller(tmp_path: Path):
    config = json.loads((GOLDEN / "llama" / "config.json").read_text()) | {"torch_dtype": "float16"}
    settings = {"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["mlp"]}
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    sizes = read_header(tmp_path).weight_bytes_by_kind(dtype="auto", quantization=None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    as_floats = read_header(tmp_path).weight_bytes_by_kind(dtype="auto", quantization=None)
    assert sizes.keys() == {"int4", "int8", "bfloat16", "float32"}  # int8: the embedding
    vocabulary_bytes = sizes["int8"] * 64 / 34  # as floats; these are bytes of 32 weights, as those that follow
    assert sizes["int4"] / (as_floats["bfloat16"] - sizes["bfloat16"] - vocabulary_bytes) == (16 + 4) / 64


@pytest.mark.parametrize("name", ["config.json", "tiny.gguf"])
def test_it_needs_neither_numpy_nor_an_engine(tmp_path: Path, name):
    shutil.copy(GOLDEN / "llama" / "config.json", tmp_path)
    write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"))
    program = PROGRAM.format(model=str(tmp_path / name)) + "print(*sys.modules, sep='\\n')"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    modules = set(output.splitlines())
    assert "numpy" not in modules and "max_model_len" in output
    # The arithmetic of the memory is the engine's own, and loads nothing.
    engine = {module for module in modules if module.startswith(("octavo.engine.", "octavo.worker", "octavo.core.s"))}
    assert engine == {"octavo.engine.memory", "octavo.engine.host", "octavo.core.sampling_params"}


def plan_for(requests: list[TracedRequest], memory_bytes: int = 2 << 20) -> Plan:
    header = read_header(GOLDEN / "llama")
    config = EngineConfig("", dtype="float32", max_num_batched_tokens=64, gpu_memory_utilization=1.0)
    return make_plan(header, config, memory_bytes, requests)


def test_max_model_len_serves_99_of_100():
    plan = plan_for([TracedRequest(0.0, 20, 100)] * 99 + [TracedRequest(0.0, 300, 10)])
    assert (plan.max_model_len, plan.num_refused) == (128, 1)
    assert plan.num_reserved == plan.memory.num_blocks // 8
    assert plan.num_reserved < plan.num_requests < plan.memory.num_blocks
    assert "--max-model-len 128 --max-num-seqs " in plan.serve_flags()
    assert "1 of the requests are longer" in plan.render()


def test_the_model_and_the_memory_bound_it():
    requests = [TracedRequest(0.0, 20, 10)] * 9 + [TracedRequest(0.0, 10_000, 10)]
    plan = plan_for(requests)
    assert plan.max_model_len == plan.header.config.max_position_embeddings
    with pytest.raises(ValueError, match=r"1000 bytes of memory, .*; raise --memory"):
        plan_for(requests, 1000)
    with pytest.raises(ValueError, match="the shortest request takes 10010 tokens"):
        plan_for(requests[9:])


@pytest.mark.parametrize(("input_len", "output_len"), LENGTHS)
def test_the_scheduler_finds_room_for_as_many_as_are_planned(input_len, output_len):
    shapes = RandomWorkload(800, Lengths.parse(input_len), Lengths.parse(output_len)).shapes()
    planned = BlocksHeld.by(shapes).num_requests(600)
    counts = running_counts(shapes, num_blocks=600, max_num_seqs=planned)
    assert sum(count == planned for count in counts) > 0.95 * len(counts)
    counts = running_counts(shapes, num_blocks=600, max_num_seqs=400)
    assert planned < sum(counts) / len(counts) < 1.2 * planned  # what it is at its mean, without a margin


def running_counts(shapes: list[TracedRequest], *, num_blocks: int, max_num_seqs: int) -> list[int]:
    """How many run after each step while others wait, once the first have left."""
    settings = EngineSettings(
        num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=4000,
        max_model_len=4000,
        enable_prefix_caching=False,
    )
    scheduler = settings.build_scheduler()
    engine = EngineCore(scheduler, PlainModel(), clock=lambda: 0.0)
    for index, shape in enumerate(shapes):
        tokens = make_tokens(shape.num_prompt_tokens, index)
        engine.add_request(make_request(f"{index}", tokens, max_tokens=shape.num_output_tokens))
    counts = []
    while scheduler.waiting:
        num_ended = sum(output.finish_reason is not None for output in engine.step().outputs)
        counts.append(len(scheduler.running) + num_ended)
    return counts[len(counts) // 3 :]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("16GB", 16 * 10**9),
        ("1.5g", 3 << 29),
        ("512 MiB", 512 << 20),
        ("1000", 1000),
        ("7kB", 7000),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-4GiB", "16 GiB of memory"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="16GiB"):
        parse_bytes(text)


def test_a_block_is_what_the_engine_calls_a_block():
    assert BlocksHeld.by([TracedRequest(0.0, BLOCK_SIZE, 1)]).mean == pytest.approx(1.0, abs=0.5)
