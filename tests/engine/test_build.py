from __future__ import annotations

from typing import Any

import pytest
from safetensors.numpy import load_file

from octavo.config import EngineConfig
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams
from octavo.engine import host
from octavo.engine.build import build_engine
from octavo.weights.checkpoint import open_checkpoint
from tests.engine.tiny_model import NUM_TOKENS

BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4  # of the tiny model in float32


def build(tiny_model, **options: Any):
    settings: dict[str, Any] = {"backend": "reference", "num_threads": 1} | options
    config = EngineConfig(model=str(tiny_model), **settings)
    return build_engine(config, open_checkpoint(tiny_model))


def test_every_decision_left_open_is_made(tiny_model):
    built = build(tiny_model, num_threads=None)
    assert built.config.served_model_name == "tiny"
    assert built.config.max_model_len == built.limits.max_model_len == built.memory.max_model_len == 512
    assert built.config.num_threads == host.num_usable_cpus()
    assert built.limits.num_blocks == built.memory.num_blocks == 64 * 32
    assert built.vocab_size == NUM_TOKENS


def test_decisions_of_the_user_stay(tiny_model):
    built = build(
        tiny_model,
        served_model_name="mine",
        max_model_len=100,
        num_threads=1,
        max_num_seqs=3,
        max_num_batched_tokens=17,
        kv_cache_memory_bytes=20 * BLOCK_BYTES,
        scheduling_policy="priority",
        enable_prefix_caching=False,
    )
    assert (built.config.served_model_name, built.config.max_model_len, built.config.num_threads) == ("mine", 100, 1)
    assert (built.limits.max_model_len, built.limits.num_blocks) == (100, 20)
    scheduler = built.core.scheduler
    assert (scheduler.max_num_batched_tokens, scheduler.has_priorities) == (17, True)
    assert not scheduler.kv.enable_prefix_caching


@pytest.mark.parametrize(
    ("options", "dtype", "head_bytes"),
    [
        ({"backend": "reference"}, "float32", 64),
        ({"dtype": "float32"}, "float32", 64),
        ({"dtype": "bfloat16"}, "bfloat16", 32),
        ({"quantization": "int4"}, "bfloat16", 32),
        ({"dtype": "float32", "kv_cache_dtype": "int8"}, "int8", 20),
        ({"backend": "reference", "kv_cache_dtype": "bfloat16"}, "bfloat16", 32),
    ],
)
def test_the_kv_cache_is_as_precise_as_the_weights_unless_told(tiny_model, options, dtype, head_bytes):
    built = build(tiny_model, **{"backend": "native"} | options)
    assert built.config.kv_cache_dtype == built.memory.kv_cache_dtype == dtype
    assert built.memory.block_bytes == 2 * 2 * 2 * 16 * head_bytes


def test_an_unknown_dtype_of_the_kv_cache_is_refused(tiny_model):
    with pytest.raises(ValueError, match="kv_cache_dtype is 'fp8'; choose 'auto', 'float32', 'bfloat16' or 'int8'"):
        build(tiny_model, kv_cache_dtype="fp8")


def test_a_length_that_cannot_be_served_fails_at_the_start(tiny_model):
    with pytest.raises(ValueError, match=r"at most 33.*--max-model-len"):
        build(tiny_model, max_model_len=34, kv_cache_memory_bytes=2 * BLOCK_BYTES)
    with pytest.raises(ValueError, match="512 positions"):
        build(tiny_model, max_model_len=513)


def test_the_longest_sequence_of_a_pool_that_just_holds_it_is_served_to_its_end(tiny_model):
    built = build(tiny_model, max_model_len=33, max_num_seqs=1)
    assert built.limits.num_blocks == 2
    params = SamplingParams(max_tokens=None, ignore_eos=True)
    built.core.add_request(EngineRequest("r", tuple(range(3, 23)), params, seed=0))
    tokens, finish_reason = [], None
    while built.core.has_unfinished:
        for output in built.core.step().outputs:
            tokens += output.new_token_ids
            finish_reason = output.finish_reason
    assert (len(tokens), finish_reason) == (13, "length")


def test_the_start_says_what_it_does(tiny_model):
    phases: list[str] = []
    config = EngineConfig(model=str(tiny_model), backend="reference")
    build_engine(config, open_checkpoint(tiny_model), on_phase=phases.append)
    assert phases[0] == "loading weights"
    assert len(set(phases)) == len(phases) == 3


def test_weights_count_as_memory(tiny_model, monkeypatch):
    monkeypatch.setattr("octavo.engine.host.memory_limit_bytes", lambda: 1 << 30)
    use = build(tiny_model).memory.use
    num_weights = sum(weight.size for weight in load_file(tiny_model / "model.safetensors").values())
    assert use.limit_bytes == 1 << 30
    assert use.weight_bytes_by_kind == {"float32": 4 * num_weights}
    assert use.activation_bytes > 512 * 4 * 64


def test_a_wrong_quantization_names_what_the_checkpoint_holds(tiny_model):
    with pytest.raises(ValueError, match="quantization is 'awq' and tiny holds floats; leave --quantization out"):
        build(tiny_model, quantization="awq")
