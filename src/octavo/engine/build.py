"""The composition root: the one place that reads a whole EngineConfig and decides what plays together."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.backends.ops import Backend, Model
from octavo.backends.reference.backend import ReferenceBackend
from octavo.config import BLOCK_SIZE, STORED, EngineConfig
from octavo.core.admission import AdmissionLimits
from octavo.core.engine_core import EngineCore
from octavo.core.executor import Executor
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.scheduler import Scheduler
from octavo.core.step_budget import StepBudget
from octavo.engine import host
from octavo.engine.memory import (
    MemoryPlan,
    MemoryUse,
    MemoryWishes,
    choose_kv_cache_dtype,
    plan_memory,
    step_activation_bytes,
)
from octavo.engine.speculation import LoadedDraft, load_draft, make_drafter
from octavo.executor.in_process import InProcessExecutor
from octavo.executor.step_log import StepLog
from octavo.models.registry import build_model
from octavo.structured.compiler import GrammarCompiler
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.sampling_defaults import SamplingDefaults
from octavo.worker.kv_cache import kv_shape
from octavo.worker.model_runner import ModelRunner
from octavo.worker.request_table import RequestTable

HASH_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine that is ready, and the decisions it was built with."""

    core: EngineCore
    grammars: GrammarCompiler  # what compiles a request's grammar before `core` gets the request
    config: EngineConfig  # resolved: no "decide for me" is left
    limits: AdmissionLimits
    memory: MemoryPlan
    vocab_size: int  # token ids that exist: the model's logits may be wider than the tokenizer, by padding
    eos_token_ids: tuple[int, ...]  # any of them ends an answer
    sampling_defaults: SamplingDefaults  # for the parameters that a request leaves open


def build_engine(
    config: EngineConfig, checkpoint: Checkpoint, on_phase: Callable[[str], None] | None = None
) -> BuiltEngine:
    """Load the model, plan the memory and put the engine together; `on_phase` hears what the start is busy with.

    Raises ValueError, naming the flags to change, where the memory cannot serve what the configuration asks for, and
    CheckpointError for a damaged checkpoint.
    """
    enter = on_phase or (lambda phase: None)
    _check_quantization(config, checkpoint)
    vocab_size = min(checkpoint.vocab_size, checkpoint.config.vocab_size)
    sampling_defaults = checkpoint.sampling_defaults if config.generation_config == "auto" else {}
    enter("loading weights")
    num_threads = config.num_threads or host.num_usable_cpus()
    backend = _make_backend(config, checkpoint, num_threads)
    model, draft, memory = _load(config, checkpoint, backend)
    config = config.resolve(
        max_model_len=memory.max_model_len,
        kv_cache_dtype=memory.kv_cache_dtype,
        num_kv_tokens=memory.num_kv_tokens,
        num_threads=num_threads,
        served_model_name=checkpoint.name,
    )
    enter("allocating the KV cache")
    kv = backend.allocate_kv(kv_shape(checkpoint.config, memory.num_blocks, memory.kv_cache_dtype))
    enter("preparing the model")
    grammars = GrammarCompiler()
    table = RequestTable(grammars, max_num_seqs=config.max_num_seqs, max_model_len=memory.max_model_len)
    speculative = config.speculative_config
    drafter = make_drafter(speculative, table, draft, memory, backend) if speculative else None
    runner = ModelRunner(backend.prepare(model, kv), kv, table, vocab_size=vocab_size, drafter=drafter)
    scheduler = _make_scheduler(config, memory)
    step_budget = StepBudget(config.target_itl_ms / 1000) if config.target_itl_ms else None
    executor: Executor = InProcessExecutor(runner)
    if config.step_log is not None:
        executor = StepLog(executor, Path(config.step_log))
    core = EngineCore(scheduler, executor, time.monotonic, step_budget)
    return BuiltEngine(
        core, grammars, config, scheduler.limits, memory, vocab_size, checkpoint.eos_token_ids, sampling_defaults
    )


def _make_backend(config: EngineConfig, checkpoint: Checkpoint, num_threads: int) -> Backend:
    if config.backend == "reference":
        return ReferenceBackend()
    from octavo.backends.native.backend import NativeBackend  # not above: the reference needs no extension

    return NativeBackend(
        num_threads,
        dtype=config.dtype,
        quantization=config.requantization,
        are_layers_quantized=checkpoint.are_layers_quantized,
        has_float_activations=config.activation_dtype == "float",
    )


def _check_quantization(config: EngineConfig, checkpoint: Checkpoint) -> None:
    """Raise ValueError if the configuration says that the checkpoint is quantized by another method than it is."""
    if config.quantization in STORED and config.quantization != checkpoint.quantization:
        found = "floats" if checkpoint.quantization is None else f"weights quantized by {checkpoint.quantization}"
        raise ValueError(
            f"quantization is {config.quantization!r} and {checkpoint.name} holds {found}; leave --quantization out"
        )


def _load(
    config: EngineConfig, checkpoint: Checkpoint, backend: Backend
) -> tuple[Model, LoadedDraft | None, MemoryPlan]:
    """Load the weights, and share out the memory that they leave."""
    started_s = time.monotonic()
    longest = checkpoint.config.max_position_embeddings
    model = build_model(checkpoint.config, checkpoint.tensors, backend, min(config.max_model_len or longest, longest))
    target_bytes = sum(backend.weight_bytes_by_kind.values())
    draft = load_draft(config, checkpoint, backend)
    kv_cache_dtype = choose_kv_cache_dtype(config.kv_cache_dtype, backend.weight_bytes_by_kind)
    use = MemoryUse(
        limit_bytes=host.memory_limit_bytes(),
        weight_bytes_by_kind=backend.weight_bytes_by_kind,
        activation_bytes=step_activation_bytes(
            checkpoint.config,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            num_drafts=config.speculative_config.num_speculative_tokens if config.speculative_config else 0,
        )
        + (draft.other_bytes(kv_cache_dtype) if draft else 0),
        draft_weight_bytes=sum(backend.weight_bytes_by_kind.values()) - target_bytes,
        draft_block_bytes=draft.config.block_bytes(kv_cache_dtype) if draft else 0,
    )
    wishes = MemoryWishes(
        config.max_num_seqs, config.max_model_len, config.gpu_memory_utilization, config.kv_cache_memory_bytes
    )
    plan = plan_memory(checkpoint.config, kv_cache_dtype, use, wishes)
    return model, draft, dataclasses.replace(plan, load_s=time.monotonic() - started_s)


def _make_scheduler(config: EngineConfig, memory: MemoryPlan) -> Scheduler:
    kv = KVCacheManager(
        memory.num_blocks,
        block_size=BLOCK_SIZE,
        enable_prefix_caching=config.enable_prefix_caching,
        hash_key=os.urandom(HASH_KEY_BYTES),
    )
    return Scheduler(
        kv,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=memory.max_model_len,
        policy=config.scheduling_policy,
    )
