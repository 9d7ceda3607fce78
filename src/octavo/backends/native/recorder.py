"""RecorderOps: the op table that computes nothing and remembers what it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from octavo.backends.native.recording import (
    Add,
    Attend,
    Embed,
    GatherRows,
    Linear,
    PlanOp,
    Recording,
    RmsNorm,
    Rotary,
    SiluMul,
    SymbolicArray,
    WriteKV,
    new_array,
)
from octavo.backends.ops import AttentionParams, Float32Array, KVCache, KVLayer, Model, RotaryTable


class BatchArray(Enum):
    """The arrays of a StepBatch that ops are given. A plan finds each in the step's batch."""

    INPUT_IDS = auto()
    POSITIONS = auto()
    SLOT_MAPPING = auto()
    LOGITS_ROWS = auto()


@dataclass(frozen=True, slots=True)
class SymbolicBatch:
    """What stands for a StepBatch while a model is recorded."""

    input_ids: BatchArray = BatchArray.INPUT_IDS
    positions: BatchArray = BatchArray.POSITIONS
    slot_mapping: BatchArray = BatchArray.SLOT_MAPPING
    logits_rows: BatchArray = BatchArray.LOGITS_ROWS


def record(model: Model, kv: KVCache) -> Recording:
    """Run the model's forward pass once, symbolically.

    Raises ValueError where arrays do not fit together, and where an op is given other indices than the batch's own.
    """
    ops = RecorderOps()
    result = model.forward(ops, SymbolicBatch(), kv)
    if not (isinstance(result, SymbolicArray) and result.buffer.is_sampled and result.is_whole):
        raise ValueError(f"the model must return logits of the batch's logits_rows, [S, V], not {result}")
    return Recording(ops.recorded, result)


class RecorderOps:
    """The op table over symbolic arrays. What each op promises is in `octavo.backends.ops`."""

    def __init__(self) -> None:
        self.recorded: list[PlanOp] = []

    def embed(self, token_ids: BatchArray, weight: Any) -> SymbolicArray:
        """Rows of the embedding."""
        _require_equal(token_ids, BatchArray.INPUT_IDS, "token_ids")
        out = new_array(weight.num_inputs, is_sampled=False)
        self.recorded.append(Embed(weight, out))
        return out

    def linear(self, x: SymbolicArray, weight: Any) -> SymbolicArray:
        """x @ weight.T + bias."""
        _require_equal(x.num_columns, weight.num_inputs, "columns of x")
        out = new_array(weight.num_outputs, is_sampled=x.buffer.is_sampled)
        self.recorded.append(Linear(x, weight, None, out))
        return out

    def add(self, x: SymbolicArray, y: SymbolicArray) -> SymbolicArray:
        """x + y."""
        _require_equal(y.num_columns, x.num_columns, "columns of y")
        _require_equal(y.buffer.is_sampled, x.buffer.is_sampled, "whether y has a row for each of logits_rows")
        out = new_array(x.num_columns, is_sampled=x.buffer.is_sampled)
        self.recorded.append(Add(x, y, out))
        return out

    def rms_norm(self, x: SymbolicArray, weight: Float32Array, eps: float) -> SymbolicArray:
        """Normalize groups of len(weight) columns."""
        _require_equal(x.num_columns % len(weight), 0, f"columns of x modulo {len(weight)}")
        out = new_array(x.num_columns, is_sampled=x.buffer.is_sampled)
        self.recorded.append(RmsNorm(x, weight, eps, out))
        return out

    def split(self, x: SymbolicArray, widths: Sequence[int]) -> tuple[SymbolicArray, ...]:
        """Views of the columns."""
        _require_equal(sum(widths), x.num_columns, "sum of widths")
        firsts = [x.first_column + sum(widths[:i]) for i in range(len(widths))]
        return tuple(SymbolicArray(x.buffer, first, width) for first, width in zip(firsts, widths, strict=True))

    def rotary(self, x: SymbolicArray, positions: BatchArray, table: RotaryTable) -> SymbolicArray:
        """Rotate each head by its position."""
        _require_equal(positions, BatchArray.POSITIONS, "positions")
        _require_tokens(x)
        head_dim = 2 * table.cos.shape[1]
        _require_equal(x.num_columns % head_dim, 0, f"columns of x modulo {head_dim}")
        out = new_array(x.num_columns, is_sampled=False)
        self.recorded.append(Rotary(x, table.cos, table.sin, out))
        return out

    def write_kv(self, k: SymbolicArray, v: SymbolicArray, kv: KVLayer, slot_mapping: BatchArray) -> None:
        """Store each token's K and V in its slot."""
        _require_equal(slot_mapping, BatchArray.SLOT_MAPPING, "slot_mapping")
        for name, x in (("k", k), ("v", v)):
            _require_tokens(x)
            _require_equal(x.num_columns, kv.num_columns, f"columns of {name}")
        self.recorded.append(WriteKV(k, v, kv))

    def attend(self, q: SymbolicArray, kv: KVLayer, batch: SymbolicBatch, params: AttentionParams) -> SymbolicArray:
        """Causal attention of every query over its own sequence's blocks."""
        _require_equal(batch, SymbolicBatch(), "batch")
        _require_tokens(q)
        _require_equal(q.num_columns % kv.num_columns, 0, f"columns of q modulo {kv.num_columns}")
        out = new_array(q.num_columns, is_sampled=False)
        self.recorded.append(Attend(q, kv, params, out))
        return out

    def silu_mul(self, gate_up: SymbolicArray) -> SymbolicArray:
        """silu(gate) * up."""
        _require_equal(gate_up.num_columns % 2, 0, "columns of gate_up modulo 2")
        out = new_array(gate_up.num_columns // 2, is_sampled=gate_up.buffer.is_sampled)
        self.recorded.append(SiluMul(gate_up, out))
        return out

    def gather_rows(self, x: SymbolicArray, rows: BatchArray) -> SymbolicArray:
        """x[rows]."""
        _require_equal(rows, BatchArray.LOGITS_ROWS, "rows")
        _require_tokens(x)
        out = new_array(x.num_columns, is_sampled=True)
        self.recorded.append(GatherRows(x, out))
        return out


def _require_equal(value: object, expected: object, what: str) -> None:
    if value != expected:
        raise ValueError(f"{what} is {value}, expected {expected}")


def _require_tokens(x: SymbolicArray) -> None:
    if x.buffer.is_sampled:
        raise ValueError("an array has a row for each of logits_rows, expected one for each token")
