"""Rules that make a recording cheaper to run, each to the same bits: the tests run plans with and without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from octavo.backends.native.recording import (
    Add,
    Buffer,
    GatherRows,
    Linear,
    LinearOfRmsNorm,
    LinearOfSiluMul,
    PlanOp,
    Recording,
    RmsNorm,
    SiluMul,
    SymbolicArray,
    new_array,
)

Rule = Callable[[Recording], Sequence[PlanOp]]
PairRule = Callable[[PlanOp, PlanOp], PlanOp | None]

_ROW_WISE = (Add, Linear, RmsNorm, SiluMul)  # a row of the output needs that row of the inputs and no other


def gather_early(recording: Recording) -> Sequence[PlanOp]:
    """Gather rows before the ops that work row by row, not after them: they then compute what is asked for alone.

    In a model it moves the gather in front of all that follows the last layer's attention.
    """
    gathered: dict[SymbolicArray, SymbolicArray] = {}  # what of an array's rows is wanted later on
    read_whole: set[Buffer] = set()  # of which later ops want every row
    backwards: list[PlanOp] = []
    for op in reversed(recording.ops):
        if isinstance(op, GatherRows) and op.x not in gathered:
            gathered[op.x] = op.out
            continue
        wanted = [array for out in op.outputs for array in gathered if array.buffer is out.buffer]
        if isinstance(op, _ROW_WISE) and wanted == [op.out] and op.out.buffer not in read_whole:
            out = gathered.pop(op.out)
            for array in op.inputs.values():
                gathered.setdefault(array, new_array(array.num_columns, is_sampled=True))
            inputs = {name: gathered[array] for name, array in op.inputs.items()}
            backwards.append(op.with_arguments(**inputs, out=out))
            continue
        backwards += [GatherRows(array, gathered.pop(array)) for array in wanted]
        backwards.append(op)
        read_whole.update(array.buffer for array in op.inputs.values())
    return backwards[::-1]


def fuse_pairs(rule: PairRule, recording: Recording) -> Sequence[PlanOp]:
    """Make one op of two, where the rule has one, if the second alone reads what the first writes."""
    writer_by_buffer = recording.read_once()
    fused: dict[PlanOp, None] = {}  # in order
    for op in recording.ops:
        writers = (writer_by_buffer.get(array.buffer) for array in op.inputs.values())
        for writer in writers:
            if writer is None or writer not in fused:
                continue
            if (both := rule(writer, op)) is not None:
                del fused[writer]
                op = both
                break
        fused[op] = None
    return list(fused)


def norm_inside_linear(first: PlanOp, second: PlanOp) -> PlanOp | None:
    """A norm is computed where the linear layer takes in its rows, and stored nowhere."""
    match first, second:
        case RmsNorm(), Linear() if len(first.weight) == first.x.num_columns:
            return LinearOfRmsNorm(first.x, first.weight, first.eps, second.weight, second.residual, second.out)
    return None


def silu_mul_inside_linear(first: PlanOp, second: PlanOp) -> PlanOp | None:
    """So is the product of an MLP's two halves."""
    match first, second:
        case SiluMul(), Linear():
            return LinearOfSiluMul(first.gate_up, second.weight, second.residual, second.out)
    return None


def residual_inside_linear(first: PlanOp, second: PlanOp) -> PlanOp | None:
    """What is added to a linear layer's output is added where the layer stores it."""
    match first, second:
        case ((Linear() | LinearOfRmsNorm() | LinearOfSiluMul()), Add()):
            return first.with_arguments(residual=second.x if first.out == second.y else second.y, out=second.out)
    return None


RULES: tuple[Rule, ...] = (
    gather_early,
    partial(fuse_pairs, norm_inside_linear),
    partial(fuse_pairs, silu_mul_inside_linear),
    partial(fuse_pairs, residual_inside_linear),
)


def apply_rules(recording: Recording, rules: Sequence[Rule] = RULES) -> Recording:
    """The recording after all rules, one after the other."""
    for rule in rules:
        recording = Recording(rule(recording), recording.result)
    return recording
