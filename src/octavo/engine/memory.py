"""How the memory is shared out: what the weights and a step take, and what is left for the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.config import BLOCK_SIZE, SCORED_PIECE_TOKENS, ModelConfig

DEFAULT_UTILIZATION = 0.9
DEFAULT_KV_BYTES = 1 << 30  # unless told otherwise: a fast start, and a machine that stays usable
FLOAT32_BYTES = 4
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What there is, and what is taken before the KV cache."""

    limit_bytes: int
    weight_bytes_by_kind: Mapping[str, int]  # "float32", "int4", ...
    activation_bytes: int  # of the largest step
    draft_weight_bytes: int = 0  # of a draft model, among the weights
    draft_block_bytes: int = 0  # of its KV, for each block of the target's

    @property
    def weights_bytes(self) -> int:
        """Of all kinds."""
        return sum(self.weight_bytes_by_kind.values())

    @property
    def rest_bytes(self) -> int:
        """Everything but the KV cache."""
        return self.weights_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class MemoryWishes:
    """What the user says about memory, under the names of EngineConfig; None: nothing."""

    max_num_seqs: int
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The numbers an engine starts with. `render` makes the table that is shown."""

    use: MemoryUse
    model: ModelConfig
    kv_cache_dtype: str
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    rule: str  # what decided the size of the KV cache, and which flag changes it
    load_s: float = 0.0

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, a draft model's part included."""
        return self.model.block_bytes(self.kv_cache_dtype) + self.use.draft_block_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache."""
        return self.num_blocks * self.block_bytes

    @property
    def num_kv_tokens(self) -> int:
        """Tokens that fit into the KV cache."""
        return self.num_blocks * BLOCK_SIZE

    @property
    def num_full_length_requests(self) -> float:
        """Requests of max_model_len that fit at once."""
        return self.num_blocks / num_blocks_for(self.max_model_len)

    def render(self) -> str:
        """The plan as a table of plain text, without a newline at its end."""
        model, use = self.model, self.use
        lines = (
            ("memory limit", mib(use.limit_bytes)),
            ("weights", f"{mib(use.weights_bytes)}, loaded in {self.load_s:.2f} s"),
            *(("", f"{mib(size)} {kind}") for kind, size in use.weight_bytes_by_kind.items()),
            *([("", f"{mib(use.draft_weight_bytes)} of these are the draft model's")] if use.draft_block_bytes else []),
            ("activations", f"{mib(use.activation_bytes)} for the largest step"),
            ("KV cache", f"{mib(self.kv_bytes)} = {self.num_blocks} blocks x {self.block_bytes} bytes"),
            (
                "",
                f"block_bytes = 2 x {model.num_layers} layers x {model.num_kv_heads} kv_heads x {BLOCK_SIZE} tokens x "
                f"{model.kv_head_bytes(self.kv_cache_dtype)} bytes = {model.block_bytes(self.kv_cache_dtype)}",
            ),
            *([("", f"and {use.draft_block_bytes} for the draft model")] if use.draft_block_bytes else []),
            (
                "",
                f"{model.head_dim} head_dim in {self.kv_cache_dtype}"
                f"{' and a scale' if self.kv_cache_dtype == 'int8' else ''}; --kv-cache-dtype changes it",
            ),
            ("", self.rule),
            ("tokens that fit", f"{self.num_kv_tokens}"),
            ("max_model_len", f"{self.max_model_len}{self._fitted_note()}"),
            ("full-length requests", f"{self.num_full_length_requests:.1f} at once"),
        )
        return "\n".join(f"{name:<21} {value}" for name, value in lines)

    def _fitted_note(self) -> str:
        longest = self.model.max_position_embeddings
        if self.max_model_len >= longest:
            return ""
        return f" (the model goes to {longest})"


def num_blocks_for(max_model_len: int) -> int:
    """Blocks of a sequence of this length. Its last token is returned but never computed, so it needs no KV."""
    return -(-(max_model_len - 1) // BLOCK_SIZE)


def choose_kv_cache_dtype(wanted: str, weight_bytes_by_kind: Mapping[str, int]) -> str:
    """What K and V are stored as; unless told, float32 where all weights are, else bfloat16 (docs/quantization.md)."""
    if wanted != "auto":
        return wanted
    return "float32" if weight_bytes_by_kind.keys() == {"float32"} else "bfloat16"


def step_activation_bytes(
    model: ModelConfig, *, max_num_batched_tokens: int, max_num_seqs: int, num_drafts: int = 0
) -> int:
    """What the largest step needs beside weights and KV, from the model's shape.

    Float32 for each token: the residual, a normed copy, Q, K and V, the attention's output, the MLP's two halves and
    their product; and the logits, for at most every sequence and each of its drafts, or for a piece of a prompt whose
    own are wanted.
    """
    attention = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    per_token = 3 * model.hidden_size + attention + 3 * model.intermediate_size
    num_logits_rows = min(max(max_num_seqs * (1 + num_drafts), SCORED_PIECE_TOKENS), max_num_batched_tokens)
    return FLOAT32_BYTES * (max_num_batched_tokens * per_token + num_logits_rows * model.vocab_size)


def plan_memory(model: ModelConfig, kv_cache_dtype: str, use: MemoryUse, wishes: MemoryWishes) -> MemoryPlan:
    """Size the KV cache and fit max_model_len to it.

    Raises ValueError, with the numbers and the flags, where no block fits or where the max_model_len that was asked
    for cannot be served.
    """
    longest = model.max_position_embeddings
    if wishes.max_model_len is not None and wishes.max_model_len > longest:
        raise ValueError(
            f"max_model_len is {wishes.max_model_len} and the model has {longest} positions; lower --max-model-len"
        )
    block_bytes = model.block_bytes(kv_cache_dtype) + use.draft_block_bytes
    kv_bytes, rule = _kv_budget(use, wishes, num_blocks_for(wishes.max_model_len or longest) * block_bytes)
    num_blocks = kv_bytes // block_bytes
    if num_blocks < 1:
        raise ValueError(
            f"no KV block of {block_bytes} bytes fits: of {mib(use.limit_bytes)} of memory, weights and activations "
            f"take {mib(use.rest_bytes)} and {mib(max(0, kv_bytes))} is left for the KV cache ({rule}); raise "
            "--gpu-memory-utilization or --kv-cache-memory-bytes, or take a smaller model"
        )
    largest = min(longest, num_blocks * BLOCK_SIZE + 1)
    if wishes.max_model_len is not None and wishes.max_model_len > largest:
        raise ValueError(
            f"max_model_len is {wishes.max_model_len} and the KV cache of {num_blocks} blocks ({rule}) serves at most "
            f"{largest}; one sequence of that length takes {num_blocks_for(wishes.max_model_len) * block_bytes} bytes: "
            "raise --kv-cache-memory-bytes or --gpu-memory-utilization, or lower --max-model-len"
        )
    return MemoryPlan(
        use, model, kv_cache_dtype, num_blocks, wishes.max_model_len or largest, wishes.max_num_seqs, rule
    )


def _kv_budget(use: MemoryUse, wishes: MemoryWishes, sequence_bytes: int) -> tuple[int, str]:
    """Bytes of the KV cache, and the rule that decided: the tightest of those that apply."""
    if wishes.kv_cache_memory_bytes is not None:
        left_bytes = use.limit_bytes - use.rest_bytes
        if wishes.kv_cache_memory_bytes > left_bytes:
            raise ValueError(
                f"kv_cache_memory_bytes is {wishes.kv_cache_memory_bytes} and beside weights and activations only "
                f"{left_bytes} of {use.limit_bytes} bytes of memory are left; lower --kv-cache-memory-bytes"
            )
        return wishes.kv_cache_memory_bytes, "as --kv-cache-memory-bytes says"
    utilization = wishes.gpu_memory_utilization or DEFAULT_UTILIZATION
    share_bytes = int(use.limit_bytes * utilization) - use.rest_bytes
    rules = [
        (
            wishes.max_num_seqs * sequence_bytes,
            f"all that {wishes.max_num_seqs} requests of full length can use; --max-num-seqs changes it",
        ),
        (
            share_bytes,
            f"{utilization:g} of the memory limit less weights and activations; --gpu-memory-utilization changes it",
        ),
    ]
    if wishes.gpu_memory_utilization is None:
        rules.append(
            (
                DEFAULT_KV_BYTES,
                f"{mib(DEFAULT_KV_BYTES)} by default; --kv-cache-memory-bytes or --gpu-memory-utilization changes it",
            )
        )
    return min(rules)


def mib(num_bytes: int) -> str:
    """As people read it."""
    return f"{num_bytes / MIB:.1f} MiB"
