"""What a user may set and what a checkpoint says about itself: frozen values that nothing mutates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BLOCK_SIZE = 16  # tokens a KV block holds
# Fields of EngineConfig that must be at least 1, and those that must be one of a few words.
COUNTS = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_queued_tokens",
    "kv_cache_memory_bytes",
    "num_threads",
)
CHOICES = {
    "backend": ("native", "reference"),
    "dtype": ("auto", "float32", "bfloat16"),
    "activation_dtype": ("auto", "float"),
    "kv_cache_dtype": ("auto", "float32", "bfloat16", "int8"),
    "scheduling_policy": ("fcfs", "priority", "fair"),
    "generation_config": ("auto", "vllm"),
}
REQUANTIZED = ("int8", "int4")  # what --quantization makes of any file
STORED = ("awq", "gptq", "compressed-tensors", "bitsandbytes", "fp8", "gguf")  # what it says of a file that is so
QUEUE_DEPTH = 4  # times what can run may wait, unless the user says otherwise
MAX_SPECULATIVE_TOKENS = 64
SCORED_PIECE_TOKENS = 32  # of a prompt whose log-probabilities are wanted, run at once: each has a row of logits


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3 frequency scaling (Meta's `apply_scaling`; transformers' `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder-only model, the same whichever file format it was read from."""

    architecture: str  # key of models.registry: "llama", "qwen2", "qwen3"
    vocab_size: int  # rows of the embedding; may exceed the tokenizer's size by padding
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    has_qkv_bias: bool = False

    def kv_head_bytes(self, kv_cache_dtype: str) -> int:
        """Bytes of the K, or of the V, of one token and KV head: its elements, and in int8 their scale, a float32."""
        itemsize, scale_bytes = {"float32": (4, 0), "bfloat16": (2, 0), "int8": (1, 4)}[kv_cache_dtype]
        return self.head_dim * itemsize + scale_bytes

    def kv_bytes_per_token(self, kv_cache_dtype: str) -> int:
        """Bytes of K and V that one token takes in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.kv_head_bytes(kv_cache_dtype)

    def block_bytes(self, kv_cache_dtype: str) -> int:
        """Bytes of one KV block."""
        return self.kv_bytes_per_token(kv_cache_dtype) * BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How tokens are guessed ahead, to be verified several at a time. The names are vLLM's."""

    method: str  # "ngram": what followed the last tokens when they stood in the text before; "draft_model"
    num_speculative_tokens: int  # guesses at a time, at most: how many are made depends on what they bring
    model: str | None = None  # of "draft_model": a path or a repository name, as for EngineConfig.model
    prompt_lookup_max: int = 4  # tokens that are looked up, as many as possible
    prompt_lookup_min: int = 2

    def __post_init__(self) -> None:
        if self.method not in ("ngram", "draft_model"):
            raise ValueError(f"speculative_config: method is {self.method!r}; choose 'ngram' or 'draft_model'")
        if (self.model is None) == (self.method == "draft_model"):
            raise ValueError(
                f"speculative_config: method is {self.method!r} and model {self.model!r}; 'draft_model' needs a model "
                "and 'ngram' takes none"
            )
        if not 1 <= self.num_speculative_tokens <= MAX_SPECULATIVE_TOKENS:
            raise ValueError(
                f"speculative_config: num_speculative_tokens is {self.num_speculative_tokens}; it must be from 1 to "
                f"{MAX_SPECULATIVE_TOKENS}"
            )
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max:
            raise ValueError(
                f"speculative_config: prompt_lookup_min is {self.prompt_lookup_min} and prompt_lookup_max "
                f"{self.prompt_lookup_max}; they must be at least 1, and the first not above the second"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SpeculativeConfig:
        """From JSON's names and values; a method need not be named where a model is. Raises ValueError."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(values.keys() - set(known))
        if unknown:
            raise ValueError(f"speculative_config does not know {', '.join(unknown)}; it knows {', '.join(known)}")
        for name, value in values.items():
            is_text = name in ("method", "model")
            if not isinstance(value, str if is_text else int) or isinstance(value, bool):
                raise ValueError(
                    f"speculative_config: {name} is {value!r}; it must be {'text' if is_text else 'an integer'}"
                )
        if "num_speculative_tokens" not in values:
            raise ValueError("speculative_config lacks num_speculative_tokens, the number of guesses at a time")
        return cls(**({"method": "draft_model" if "model" in values else "ngram"} | dict(values)))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine can be told. `None` means "decide for me"; `resolve()` decides, into a new object.

    The names are vLLM's.
    """

    model: str  # path of a .gguf file or of a Hugging Face folder, or a Hugging Face repository name
    served_model_name: str | None = None  # default: the name of the file or folder
    backend: str = "native"  # "native" or "reference"
    dtype: str = "auto"  # what matrices become: "float32", "bfloat16", or "auto": what is nearest to their file
    quantization: str | None = None  # of REQUANTIZED: what matrices become while loading; of STORED: what the file is
    activation_dtype: str = "auto"  # what quantized matrices multiply: "auto": whole numbers; "float": floats, slowly
    kv_cache_dtype: str = "auto"  # what K and V are stored as: "float32", "bfloat16", "int8", or "auto": by the weights
    max_model_len: int | None = None  # tokens of prompt and output together; default: as many as memory allows
    max_num_seqs: int = 64  # requests that run at once
    max_num_batched_tokens: int = 512  # tokens computed in one step, over all requests
    max_queued_requests: int | None = None  # of a server: how many may wait beyond max_num_seqs; the others get 429
    max_queued_tokens: int | None = None  # of a server: prompt tokens that may wait together
    target_itl_ms: float | None = None  # a step takes no longer while streams run, so far as shorter chunks can help
    gpu_memory_utilization: float | None = None  # share of the device's memory (on a CPU: of the machine's) to use
    kv_cache_memory_bytes: int | None = None  # KV cache size; overrides gpu_memory_utilization
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"  # "fcfs", "priority" (smaller value first) or "fair" (tenants take turns)
    max_logprobs: int = 20  # most log-probabilities a request may ask for at each token; -1: the whole vocabulary
    generation_config: str = "auto"  # where sampling defaults come from: "auto": the checkpoint; "vllm": SamplingParams
    num_threads: int | None = None  # kernel threads; default: the CPUs this process may use
    speculative_config: SpeculativeConfig | None = None  # how to guess tokens ahead; None: not at all
    step_log: str | None = None  # a file that gets a line for each step: what it ran, and how long it took
    seed: int | None = None  # where requests without a seed get theirs from; None: fresh randomness

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                listed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose {listed}")
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.max_queued_requests is not None and self.max_queued_requests < 0:
            raise ValueError(f"max_queued_requests is {self.max_queued_requests}; it must be at least 0")
        if self.target_itl_ms is not None and not self.target_itl_ms > 0:
            raise ValueError(f"target_itl_ms is {self.target_itl_ms}; it must be above 0")
        share = self.gpu_memory_utilization
        if share is not None and not 0.0 < share <= 1.0:
            raise ValueError(f"gpu_memory_utilization is {share}; it must be above 0 and at most 1")
        if self.max_logprobs < -1:
            raise ValueError(f"max_logprobs is {self.max_logprobs}; it must be at least 0, or -1 for all")
        self._check_precision()

    def _check_precision(self) -> None:
        if self.quantization not in (None, *REQUANTIZED, *STORED):
            raise ValueError(
                f"quantization is {self.quantization!r}; choose one of {', '.join(REQUANTIZED)}, or the method of a "
                f"quantized checkpoint, {', '.join(STORED)}, or leave it out: the checkpoint says what it holds"
            )
        if self.activation_dtype == "float" and self.requantization is not None:
            raise ValueError(
                f"activation_dtype is 'float' and quantization {self.quantization!r}, which multiplies whole numbers; "
                "leave --activation-dtype or --quantization out"
            )
        if self.requantization is not None and self.dtype != "auto":
            raise ValueError(
                f"dtype is {self.dtype!r} and quantization {self.quantization!r}; weights can be one of the two: "
                "leave --dtype or --quantization out"
            )
        if self.backend == "reference" and (self.dtype == "bfloat16" or self.requantization is not None):
            raise ValueError(
                f"the reference backend computes in float32, not in {self.requantization or self.dtype}; "
                "leave --dtype and --quantization out, or take --backend native"
            )

    @property
    def requantization(self) -> str | None:
        """What matrices are quantized to while loading, of REQUANTIZED; None: they stay what the file has them as."""
        return self.quantization if self.quantization in REQUANTIZED else None

    def resolve(
        self, *, max_model_len: int, kv_cache_dtype: str, num_kv_tokens: int, num_threads: int, served_model_name: str
    ) -> EngineConfig:
        """Return this configuration with every "decide for me" replaced by the given decision, or by what follows.

        `num_kv_tokens` is how many tokens the KV cache holds.
        """
        max_queued = self.max_queued_requests
        return dataclasses.replace(
            self,
            max_model_len=self.max_model_len or max_model_len,
            kv_cache_dtype=kv_cache_dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype,
            num_threads=self.num_threads or num_threads,
            served_model_name=self.served_model_name or served_model_name,
            max_queued_requests=QUEUE_DEPTH * self.max_num_seqs if max_queued is None else max_queued,
            max_queued_tokens=self.max_queued_tokens or QUEUE_DEPTH * num_kv_tokens,
        )
