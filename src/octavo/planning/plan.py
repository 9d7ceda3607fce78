"""Plan: a model, a memory and the lengths of requests, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.bench.report import percentile
from octavo.bench.traces import TracedRequest
from octavo.config import BLOCK_SIZE, EngineConfig
from octavo.engine.memory import (
    MemoryPlan,
    MemoryUse,
    MemoryWishes,
    choose_kv_cache_dtype,
    mib,
    num_blocks_for,
    plan_memory,
    step_activation_bytes,
)
from octavo.planning.capacity import BlocksHeld
from octavo.planning.model_header import ModelHeader

SERVED_PERCENT = 99  # of the requests, by the max_model_len that is proposed


@dataclass(frozen=True, slots=True)
class Plan:
    """What fits, and what to choose."""

    header: ModelHeader
    memory: MemoryPlan
    max_model_len: int  # serves SERVED_PERCENT of the requests, as far as the model and the memory go
    total_lens: Sequence[int]  # prompt and output of each request, the shortest first
    num_requests: int  # that fit at once
    num_reserved: int  # that would fit if each had max_model_len reserved

    @property
    def num_refused(self) -> int:
        """Requests of the sample that are longer than max_model_len."""
        return sum(length > self.max_model_len for length in self.total_lens)

    def serve_flags(self) -> str:
        """What to start a server with."""
        max_num_seqs = max(1, min(self.num_requests, self.memory.max_num_seqs))
        return (
            f"--max-model-len {self.max_model_len} --max-num-seqs {max_num_seqs} "
            f"--kv-cache-memory-bytes {self.memory.kv_bytes}"
        )

    def render(self) -> str:
        """The plan as a table of plain text, without a newline at its end."""
        model, memory, lens = self.header.config, self.memory, self.total_lens
        p50, p95, p99 = (round(percentile(lens, percent)) for percent in (50, 95, 99))
        kinds = ", ".join(f"{mib(size)} {kind}" for kind, size in memory.use.weight_bytes_by_kind.items())
        lines = (
            (
                "model",
                f"{self.header.name}: {self.header.num_parameters / 1e6:.0f} million parameters, {model.architecture}",
            ),
            ("", f"{model.num_layers} layers, {model.num_kv_heads} KV heads of {model.head_dim}"),
            ("memory", mib(memory.use.limit_bytes)),
            ("weights", f"{mib(memory.use.weights_bytes)}: {kinds}"),
            ("activations", f"{mib(memory.use.activation_bytes)} for the largest step"),
            ("KV cache", f"{mib(memory.kv_bytes)} = {memory.num_blocks} blocks of {BLOCK_SIZE} tokens"),
            ("", f"{model.kv_bytes_per_token(memory.kv_cache_dtype)} bytes a token in {memory.kv_cache_dtype}"),
            ("requests", f"{len(lens)}, prompt and output: p50 {p50}, p95 {p95}, p99 {p99}, longest {lens[-1]} tokens"),
            ("max_model_len", f"{self.max_model_len}; {self.num_refused} of the requests are longer"),
            ("", f"the model goes to {model.max_position_embeddings}, the memory to {memory.max_model_len}"),
            ("fit at once", f"{self.num_requests} requests, growing as they run, in 99 of 100 moments"),
            ("", f"{self.num_reserved}, if each had {self.max_model_len} tokens reserved"),
        )
        return "\n".join(f"{name:<21} {value}" for name, value in lines)


def make_plan(header: ModelHeader, config: EngineConfig, memory_bytes: int, requests: Sequence[TracedRequest]) -> Plan:
    """Plan for a device of this memory, of which `config.gpu_memory_utilization` may be used.

    Raises ValueError, with the numbers and the flags, where the model leaves no room for a KV cache.
    """
    weight_bytes_by_kind = header.weight_bytes_by_kind(dtype=config.dtype, quantization=config.requantization)
    memory = _plan_memory(header, config, memory_bytes, weight_bytes_by_kind)
    total_lens = sorted(request.num_prompt_tokens + request.num_output_tokens for request in requests)
    wanted = math.ceil(percentile(total_lens, SERVED_PERCENT) / BLOCK_SIZE) * BLOCK_SIZE
    max_model_len = min(wanted, memory.max_model_len)
    served = [r for r in requests if r.num_prompt_tokens + r.num_output_tokens <= max_model_len]
    if not served:
        raise ValueError(
            f"the shortest request takes {total_lens[0]} tokens, and at most {max_model_len} can be served; "
            "raise --memory, or take --kv-cache-dtype int8"
        )
    return Plan(
        header=header,
        memory=memory,
        max_model_len=max_model_len,
        total_lens=total_lens,
        num_requests=BlocksHeld.by(served).num_requests(memory.num_blocks),
        num_reserved=memory.num_blocks // num_blocks_for(max_model_len),
    )


def _plan_memory(
    header: ModelHeader, config: EngineConfig, memory_bytes: int, weight_bytes_by_kind: Mapping[str, int]
) -> MemoryPlan:
    """All that the share of the memory leaves goes to the KV cache."""
    use = MemoryUse(
        limit_bytes=memory_bytes,
        weight_bytes_by_kind=weight_bytes_by_kind,
        activation_bytes=step_activation_bytes(
            header.config, max_num_batched_tokens=config.max_num_batched_tokens, max_num_seqs=config.max_num_seqs
        ),
    )
    usable_bytes = int(memory_bytes * (config.gpu_memory_utilization or 1.0))
    if usable_bytes <= use.rest_bytes:
        raise ValueError(
            f"of {memory_bytes} bytes of memory, {usable_bytes} may be used, and weights and activations take "
            f"{use.rest_bytes}; raise --memory or --gpu-memory-utilization, or take --quantization int4"
        )
    wishes = MemoryWishes(config.max_num_seqs, kv_cache_memory_bytes=usable_bytes - use.rest_bytes)
    kv_cache_dtype = choose_kv_cache_dtype(config.kv_cache_dtype, weight_bytes_by_kind)
    return plan_memory(header.config, kv_cache_dtype, use, wishes)
