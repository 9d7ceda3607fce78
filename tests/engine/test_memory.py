from __future__ import annotations

import dataclasses

import pytest

from octavo.config import ModelConfig
from octavo.engine.memory import MemoryUse, MemoryWishes, plan_memory, step_activation_bytes

GIB = 1 << 30
MIB = 1 << 20
SEVEN_B = ModelConfig(
    architecture="llama",
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_layers=32,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
)
TINY = dataclasses.replace(SEVEN_B, num_layers=2, num_kv_heads=2, head_dim=16, max_position_embeddings=256)
TINY_BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4  # float32


def use(limit_bytes: int = 64 * GIB, weights_bytes: int = 0, activation_bytes: int = 0) -> MemoryUse:
    return MemoryUse(limit_bytes, {"int8": weights_bytes // 2, "int4": weights_bytes // 2}, activation_bytes)


def plan(model=SEVEN_B, kv_cache_dtype="bfloat16", memory=None, **wishes):
    return plan_memory(model, kv_cache_dtype, memory or use(), MemoryWishes(**{"max_num_seqs": 64} | wishes))


def test_a_token_of_a_7b_model_takes_half_a_mebibyte():
    assert SEVEN_B.kv_bytes_per_token("bfloat16") == MIB // 2
    assert plan().block_bytes == 8 * MIB


def test_int8_takes_a_quarter_of_float32_and_a_scale_for_each_head():
    assert SEVEN_B.block_bytes("float32") == 16 * MIB
    assert SEVEN_B.block_bytes("int8") == 2 * 32 * 32 * 16 * (128 + 4)
    assert "132 bytes = 4325376\n" in plan(kv_cache_dtype="int8").render()
    assert "128 head_dim in int8 and a scale" in plan(kv_cache_dtype="int8").render()


def test_unless_told_otherwise_the_cache_is_one_gibibyte():
    default = plan(memory=use(weights_bytes=14 * GIB))
    assert (default.kv_bytes, default.num_kv_tokens) == (GIB, 2048)
    assert "--kv-cache-memory-bytes" in default.rule


def test_a_small_machine_gives_what_is_left_of_nine_tenths():
    small = plan(memory=use(10 * GIB, weights_bytes=8 * GIB, activation_bytes=GIB // 2))
    assert small.kv_bytes == GIB // 2
    assert small.rule.startswith("0.9 of the memory limit")
    assert "--gpu-memory-utilization" in small.rule


def test_a_share_is_of_the_limit_less_weights_and_activations():
    shared = plan(memory=use(64 * GIB, weights_bytes=14 * GIB, activation_bytes=GIB), gpu_memory_utilization=0.5)
    assert shared.kv_bytes == 17 * GIB
    assert shared.num_full_length_requests == 8.5


def test_the_cache_is_never_larger_than_all_sequences_together_can_use():
    for utilization in (None, 0.9):
        capped = plan(TINY, "float32", max_num_seqs=3, max_model_len=33, gpu_memory_utilization=utilization)
        assert capped.num_blocks == 3 * 2
        assert "--max-num-seqs" in capped.rule
    assert plan(TINY, "float32", max_num_seqs=3, max_model_len=34).num_blocks == 3 * 3


def test_bytes_that_the_user_names_are_taken_as_they_are():
    named = plan(
        TINY, "float32", max_num_seqs=1, kv_cache_memory_bytes=50 * TINY_BLOCK_BYTES + 1, gpu_memory_utilization=0.5
    )
    assert named.num_blocks == 50


def test_bytes_beyond_the_machine_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"kv_cache_memory_bytes is 3221225472 .* only 2147483648 of 4294967296 bytes"):
        plan(memory=use(4 * GIB, weights_bytes=2 * GIB), kv_cache_memory_bytes=3 * GIB)


def test_no_room_for_a_block_is_refused_with_the_numbers_and_the_flags():
    with pytest.raises(ValueError, match=r"14336\.0 MiB.*--gpu-memory-utilization"):
        plan(memory=use(15 * GIB, weights_bytes=14 * GIB))


def test_the_models_length_is_fitted_to_the_pool():
    assert plan(TINY, "float32").max_model_len == 256
    assert plan(TINY, "float32", kv_cache_memory_bytes=2 * TINY_BLOCK_BYTES).max_model_len == 33


def test_an_explicit_length_is_served_up_to_the_last_token_that_fits():
    two_blocks = {"kv_cache_memory_bytes": 2 * TINY_BLOCK_BYTES}
    assert plan(TINY, "float32", max_model_len=33, **two_blocks).max_model_len == 33
    with pytest.raises(ValueError, match="at most 33") as refusal:
        plan(TINY, "float32", max_model_len=34, **two_blocks)
    for flag in ("--gpu-memory-utilization", "--kv-cache-memory-bytes", "--max-model-len"):
        assert flag in str(refusal.value)


def test_a_length_beyond_the_models_positions_is_refused():
    with pytest.raises(ValueError, match="max_model_len is 257 and the model has 256 positions"):
        plan(TINY, "float32", max_model_len=257)


def test_the_table_says_how_it_came_about():
    text = dataclasses.replace(plan(memory=use(weights_bytes=14 * GIB)), load_s=1.25).render()
    formula = "block_bytes = 2 x 32 layers x 32 kv_heads x 16 tokens x 256 bytes = 8388608"
    for part in (
        formula,
        "128 head_dim in bfloat16; --kv-cache-dtype changes it",
        "14336.0 MiB, loaded in 1.25 s",
        "7168.0 MiB int4",
        "128 blocks",
        "2048",
        "(the model goes to 4096)",
        "1.0 at",
    ):
        assert part in text
    assert "the model goes to" not in plan(TINY, "float32").render()


def test_activations_grow_with_the_step_and_logits_with_the_sequences():
    small = step_activation_bytes(TINY, max_num_batched_tokens=16, max_num_seqs=1)
    large = step_activation_bytes(TINY, max_num_batched_tokens=64, max_num_seqs=1)  # logits of a piece of a prompt
    more_rows = step_activation_bytes(TINY, max_num_batched_tokens=64, max_num_seqs=35)
    assert large - small > 48 * 4 * 3 * TINY.intermediate_size
    assert more_rows - large == (35 - 32) * 4 * TINY.vocab_size
    assert step_activation_bytes(TINY, max_num_batched_tokens=16, max_num_seqs=99) == small
