"""The op table: what a model may ask of a backend, and what each op promises.

A model is written once against `Ops` and never looks inside an `Array`: to the reference backend it is a numpy
array computed at once, to another it may be a buffer on a device or a name in a recorded plan.

Shapes: T tokens of all requests in a row (no padding between them), R requests, S sampled rows, H hidden size,
D head size, V vocabulary. Floats are float32, indices int32 unless said otherwise.

**The promise every backend keeps:** each output row depends on that row's inputs alone, bit for bit: not on T or R,
not on the row's place, not on how a prompt was cut into chunks, not on block numbers. Reductions over K, over D and
over the KV of a sequence run in an order fixed by that row alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.quantization.codes import CodeScales
from octavo.quantization.gguf import dequantize

Array = Any  # a backend's float array; opaque to models
Weight = Any  # a backend's packed parameter; opaque to models
KVLayer = Any  # K and V blocks of one layer; opaque to models

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]
ByteArray = NDArray[np.uint8]
MaskArray = NDArray[np.uint32]

PAD_SLOT = -1  # a slot that write_kv skips
NOT_FINITE, NOTHING_LEFT = -1, -2  # in place of a token: the logits hold NaN or infinity; no token may be chosen


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step's requests as arrays: prompt chunks, decodes and drafts alike."""

    input_ids: Int32Array  # [T]
    positions: Int32Array  # [T] place of each token in its sequence
    slot_mapping: Int32Array  # [T] block_id * block_size + offset of each token's KV; PAD_SLOT: none
    query_start_loc: Int32Array  # [R + 1] first token of each request; the last entry is T
    seq_lens: Int32Array  # [R] tokens of each sequence whose KV exists once this step has written its own
    block_table: Int32Array  # [R, max blocks] block ids of each sequence, in order; unused entries arbitrary
    logits_rows: Int32Array  # [S] which of the T tokens need logits; none in a step of unfinished prompts

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.input_ids)

    @property
    def num_reqs(self) -> int:
        """R."""
        return len(self.seq_lens)


@dataclass(frozen=True, slots=True)
class IdLists:
    """A list of token ids for each of S rows, laid end to end."""

    start: Int32Array  # [S + 1]
    ids: Int32Array

    def of_row(self, i: int) -> slice:
        """Where the ids of row i lie, and whatever belongs to each of them."""
        return slice(self.start[i], self.start[i + 1])


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """How to choose a token from each of S rows of logits, see `Step.sample`. Only masks are that wide."""

    temperature: Float32Array  # [S] below 1e-5: greedy
    top_k: Int32Array  # [S] 0 or less: off
    top_p: Float32Array  # [S]
    min_p: Float32Array  # [S]
    repetition_penalty: Float32Array  # [S] 1: off
    frequency_penalty: Float32Array  # [S] 0: off
    presence_penalty: Float32Array  # [S] 0: off
    seed: NDArray[np.uint64]  # [S] Philox key
    output_index: NDArray[np.uint64]  # [S] Philox counter: how many tokens the request has generated before this one
    num_logprobs: Int32Array  # [S] alternatives to report; -1: no log-probabilities at all
    allowed: IdLists  # nothing else may be chosen, unless the list is empty
    masks: MaskArray  # [M, ceil(vocab_size / 32)] bit i % 32 of word i // 32: whether token i may be chosen
    mask_index: Int32Array  # [S] which of the masks holds for a row; -1: none
    banned: IdLists
    biased: IdLists  # no id twice in a row
    bias: Float32Array  # of each biased id
    seen: IdLists  # ids in the prompt or the output, those that the row's penalties need; no id twice in a row
    output_counts: Int32Array  # how often each seen id is in the output; 0: in the prompt alone
    vocab_size: int  # only ids below this are chosen, reported or summed: logits may be wider by padding


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """What was chosen for each of S rows; k = the largest num_logprobs of the batch, at least 0."""

    token_ids: Int32Array  # [S] or NOT_FINITE, or NOTHING_LEFT
    logprob: Float32Array  # [S] of the chosen token; undefined where num_logprobs is -1
    rank: Int32Array  # [S] 1 + the number of ids whose logit is larger
    top_ids: Int32Array  # [S, k] most likely first, equal logits by id; entries past a row's num_logprobs undefined
    top_logprobs: Float32Array  # [S, k]

    @classmethod
    def blank(cls, num_logprobs: Int32Array) -> SampledBatch:
        """Room for S rows that ask for so many alternatives each; what stays undefined is NaN, 0 or -1."""
        num_rows, k = len(num_logprobs), max([0, *num_logprobs.tolist()])
        return cls(
            token_ids=np.full(num_rows, -1, np.int32),
            logprob=np.full(num_rows, np.nan, np.float32),
            rank=np.zeros(num_rows, np.int32),
            top_ids=np.full((num_rows, k), -1, np.int32),
            top_logprobs=np.full((num_rows, k), np.nan, np.float32),
        )


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A parameter as its file holds it. Nothing above a backend looks at the format."""

    format: str  # a key of quantization.gguf.BLOCK_FORMATS, floats included; or what quantization.codes calls a format
    data: ByteArray  # [N, bytes of a row], or the bytes of a vector; in the file itself where that is possible
    shape: tuple[int, ...]  # [N, K] or [N], counted in numbers
    scales: CodeScales | None = None  # of formats whose scales lie apart

    def to_float32(self) -> Float32Array:
        """The numbers, by their formula; read-only where they are the file itself."""
        if self.scales is not None:
            return self.scales.decode(self.data)
        return dequantize(self.data.reshape(-1), self.format, math.prod(self.shape)).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class KVShape:
    """How large a KV cache is, and what K and V are rounded to when they are written. Its layout is the backend's.

    bfloat16: the nearest one, of two the even one. int8: the K, and the V, of each token and KV head has a float32
    scale = max |x| / 127 and D codes, the integers nearest to x / scale, of two the even one. Where that scale would be
    below the smallest normal number all are 0; NaN or infinity among the D numbers makes all of them NaN.
    """

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: str = "float32"  # or "bfloat16" or "int8"


@dataclass(frozen=True, eq=False, slots=True)
class AttentionParams:
    """What a layer's attention is besides its queries, keys and values."""

    scale: float  # of the scores, mostly D ** -0.5
    window: int | None = None  # how many positions a token sees, its own the last of them; None: all
    soft_cap: float | None = None  # scores become soft_cap * tanh(scores / soft_cap) (Gemma 2); None: as they are
    sinks: Weight | None = None  # [heads] of load_weight: a score of each head that has no value (gpt-oss)

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}; a token sees at least itself, so it must be at least 1")
        if self.soft_cap is not None and not 0 < self.soft_cap < math.inf:
            raise ValueError(f"soft_cap is {self.soft_cap}; it must be positive and finite")


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Cosine and sine of every position's angles, [max positions, D / 2] both: what backends on a CPU rotate by."""

    cos: Float32Array
    sin: Float32Array


class KVCache(Protocol):
    """The K and V blocks of all layers."""

    layers: Sequence[KVLayer]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy K and V of every layer from block to block, pair after pair in the given order."""
        ...


class Ops(Protocol):
    """The table. Every op returns a new array and leaves its inputs alone, but for `write_kv`."""

    def embed(self, token_ids: Array, weight: Weight) -> Array:
        """Rows of the embedding. [T] ids, [V, H] -> [T, H]. Exactly the numbers that the weight was packed into."""
        ...

    def linear(self, x: Array, weight: Weight) -> Array:
        """x @ weight.T + bias. [T, K], [N, K] (and [N]) -> [T, N]."""
        ...

    def add(self, x: Array, y: Array) -> Array:
        """x + y, elementwise. Exact."""
        ...

    def rms_norm(self, x: Array, weight: Weight, eps: float) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight over groups of len(weight) columns (Zhang & Sennrich 2019).

        [T, G * len(weight)] -> same. With G = 1 it is the layer's norm, with len(weight) = D the norm of each head.
        """
        ...

    def split(self, x: Array, widths: Sequence[int]) -> tuple[Array, ...]:
        """Cut the columns into parts of these widths, which must sum to the number of columns. Exact."""
        ...

    def rotary(self, x: Array, positions: Array, table: Weight) -> Array:
        """Rotate each head by its position, first half against second (Su et al. 2021, in the NeoX order).

        [T, heads * D], [T], table of `rotary_table` -> [T, heads * D]:
        out[i] = x[i] cos - x[i + D/2] sin and out[i + D/2] = x[i + D/2] cos + x[i] sin, for i < D/2.
        """
        ...

    def write_kv(self, k: Array, v: Array, kv: KVLayer, slot_mapping: Array) -> None:
        """Store each token's K and V, [T, KV heads * D] both, in its slot. Slots of PAD_SLOT are skipped."""
        ...

    def attend(self, q: Array, kv: KVLayer, batch: Any, params: AttentionParams) -> Array:
        """Causal attention of every query over its own sequence's blocks. [T, heads * D] -> [T, heads * D].

        The token at position p sees positions 0..p, in a window those above p - window: s = scale * q @ K.T, capped
        where there is a soft cap, and out = exp(s) @ V / (sum of exp(s) + exp(sink)), without the last term where there
        are no sinks. Query head h reads KV head h // (heads / KV heads). Blocks that lie before the window of every
        query are not read; the table must name blocks that exist for them, too.
        `batch` is a StepBatch, or what stands for one while recording.
        """
        ...

    def silu_mul(self, gate_up: Array) -> Array:
        """silu(gate) * up, where gate is the left half of the columns. [T, 2F] -> [T, F]."""
        ...

    def gather_rows(self, x: Array, rows: Array) -> Array:
        """x[rows]. [T, H], [S] -> [S, H]. Exact."""
        ...


class Step(Protocol):
    """A model made ready to run."""

    def run(self, batch: StepBatch) -> Array:
        """Run one step; write its KV and return the logits of `batch.logits_rows`, [S, V]."""
        ...

    def sample(self, logits: Array, sampling: SamplingBatch) -> SampledBatch:
        """Choose one token a row, while it is in the cache and without sorting the vocabulary. The order is vLLM's.

        The logits x of the ids below `vocab_size` are changed one after another, in float32:
        1. x = -inf for every id not in `allowed`, if that has any, for every id that the row's mask, if it has one,
           leaves out, and for every id in `banned`;
        2. x = x + bias, for biased ids;
        3. x = x / repetition_penalty if x > 0, else x * repetition_penalty, for seen ids;
        4. x = x - frequency_penalty * count, then x = x - presence_penalty, for seen ids whose count in the output
           is not 0.
        Greedy: the largest x, the smallest id among equals. Else
        5. p = softmax(x / temperature);
        6. keep ids with p >= min_p * max(p); of these the top_k first in the order (larger x first, then smaller
           id); of these the shortest beginning whose share reaches top_p;
        7. draw u = philox_uniform(seed, output_index) and take the first kept id, in order of ids, at which the
           running sum of p exceeds u times the kept sum.
        Log-probabilities are log softmax(logits) over ids below `vocab_size`: the raw distribution, before step 1.
        """
        ...


class Model(Protocol):
    """What a backend prepares: a model's forward pass over one step's tokens."""

    def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Array:
        """Return logits [S, V] for `batch.logits_rows`."""
        ...


class Backend(Protocol):
    """Makes weights, caches and runnable steps."""

    weight_bytes_by_kind: dict[str, int]  # what the parameters have become so far ("float32", "int4", ...)

    def load_weight(
        self, parts: Sequence[StoredTensor], bias: Float32Array | None = None, *, is_vocabulary: bool = False
    ) -> Weight:
        """Pack a parameter: [N, K] for `linear` and `embed` alike (a tied head is packed once), [N] for `rms_norm`.

        Several parts of the same K are stacked along N. `is_vocabulary`: its rows stand for tokens.
        """
        ...

    def rotary_table(self, cos: Float32Array, sin: Float32Array) -> Weight:
        """Keep the cosines and sines of every position, [max positions, D / 2] both, for `rotary`."""
        ...

    def allocate_kv(self, shape: KVShape) -> KVCache:
        """Reserve the memory of a KV cache and see that it becomes resident, so that it cannot be refused later."""
        ...

    def prepare(self, model: Model, kv: KVCache) -> Step:
        """Make the model runnable over this cache."""
        ...


def philox_uniform(seed: int, output_index: int) -> float:
    """A float64 in [0, 1) from Philox-4x32-10 (Salmon et al. 2011): key = seed, counter = (output_index, 0).

    53 bits: the first two words w0, w1 of the block give ((w1 << 32 | w0) >> 11) * 2**-53. Backends compute the same.
    """
    multiplier_0, multiplier_1, weyl_0, weyl_1, mask = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF
    c0, c1, c2, c3 = output_index & mask, (output_index >> 32) & mask, 0, 0
    k0, k1 = seed & mask, (seed >> 32) & mask
    for _ in range(10):
        product_0, product_1 = multiplier_0 * c0, multiplier_1 * c2
        c0, c1, c2, c3 = (product_1 >> 32) ^ c1 ^ k0, product_1 & mask, (product_0 >> 32) ^ c3 ^ k1, product_0 & mask
        k0, k1 = (k0 + weyl_0) & mask, (k1 + weyl_1) & mask
    return float((c1 << 32 | c0) >> 11) * 2.0**-53
