"""What a model's forward pass leaves when it is recorded: a list of ops over arrays that hold no numbers yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from octavo.backends.ops import AttentionParams, Float32Array, KVLayer


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """The rows that one op writes, and nobody after it."""

    num_columns: int
    is_sampled: bool  # S rows, not T

    @property
    def whole(self) -> SymbolicArray:
        """All of its columns."""
        return SymbolicArray(self, 0, self.num_columns)


@dataclass(frozen=True, slots=True)
class SymbolicArray:
    """Some columns of a buffer. To a model this is an `Array`."""

    buffer: Buffer
    first_column: int
    num_columns: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all of the buffer's columns."""
        return self.num_columns == self.buffer.num_columns


def new_array(num_columns: int, *, is_sampled: bool) -> SymbolicArray:
    """A buffer of its own, whole."""
    return Buffer(num_columns, is_sampled).whole


@dataclass(frozen=True, eq=False, slots=True)
class PlanOp:
    """An op of a plan: its fields are the parameters of the method of csrc/plan.h called `method`."""

    method: ClassVar[str]

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def inputs(self) -> dict[str, SymbolicArray]:
        """The arrays it reads, by name."""
        arrays = {name: value for name, value in self.arguments.items() if isinstance(value, SymbolicArray)}
        arrays.pop("out", None)
        return arrays

    @property
    def outputs(self) -> tuple[SymbolicArray, ...]:
        """The array it writes, if it writes one."""
        return tuple(value for name, value in self.arguments.items() if name == "out")

    def with_arguments(self, **changes: Any) -> PlanOp:
        """The same op with some other arguments."""
        return replace(self, **changes)


@dataclass(frozen=True, eq=False, slots=True)
class Embed(PlanOp):
    """Of the batch's `input_ids`."""

    method = "embed"
    weight: Any
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class Linear(PlanOp):
    """x @ weight.T + bias, and the residual added where there is one."""

    method = "linear"
    x: SymbolicArray
    weight: Any
    residual: SymbolicArray | None
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class LinearOfRmsNorm(PlanOp):
    """A Linear of an RmsNorm."""

    method = "linear_of_rms_norm"
    x: SymbolicArray
    norm_weight: Float32Array
    eps: float
    weight: Any
    residual: SymbolicArray | None
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class LinearOfSiluMul(PlanOp):
    """A Linear of a SiluMul."""

    method = "linear_of_silu_mul"
    gate_up: SymbolicArray
    weight: Any
    residual: SymbolicArray | None
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class Add(PlanOp):
    """x + y."""

    method = "add"
    x: SymbolicArray
    y: SymbolicArray
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class RmsNorm(PlanOp):
    """Of groups of len(weight) columns."""

    method = "rms_norm"
    x: SymbolicArray
    weight: Float32Array
    eps: float
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class Rotary(PlanOp):
    """By the batch's `positions`."""

    method = "rotary"
    x: SymbolicArray
    cos: Float32Array
    sin: Float32Array
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class WriteKV(PlanOp):
    """To the batch's `slot_mapping`."""

    method = "write_kv"
    k: SymbolicArray
    v: SymbolicArray
    kv: KVLayer


@dataclass(frozen=True, eq=False, slots=True)
class Attend(PlanOp):
    """Over the blocks of the batch's requests."""

    method = "attend"
    q: SymbolicArray
    kv: KVLayer
    params: AttentionParams
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class SiluMul(PlanOp):
    """silu(gate) * up."""

    method = "silu_mul"
    gate_up: SymbolicArray
    out: SymbolicArray


@dataclass(frozen=True, eq=False, slots=True)
class GatherRows(PlanOp):
    """The batch's `logits_rows`."""

    method = "gather_rows"
    x: SymbolicArray
    out: SymbolicArray


@dataclass(frozen=True, slots=True)
class Recording:
    """The ops in order, and the array that the model returned."""

    ops: Sequence[PlanOp]
    result: SymbolicArray

    def read_once(self) -> dict[Buffer, PlanOp]:
        """The buffers that one op alone reads, once and whole, and which op wrote them: the two may become one."""
        reads = [array for op in self.ops for array in op.inputs.values()] + [self.result]
        num_reads = Counter(array.buffer for array in reads)
        once = {array.buffer for array in reads if num_reads[array.buffer] == 1 and array.is_whole}
        return {out.buffer: op for op in self.ops for out in op.outputs if out.buffer in once}
