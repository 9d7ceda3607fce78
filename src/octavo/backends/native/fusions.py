"""Rules that make a recording cheaper to run, each to the same bits: the tests run plans with and without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.backends.native.recording import (
    Add,
    Buffer,
    GatherRows,
    Linear,
    PlanOp,
    Recording,
    RmsNorm,
    SiluMul,
    SymbolicArray,
    new_array,
)

Rule = Callable[[Sequence[PlanOp]], list[PlanOp]]

_ROW_WISE = (Add, Linear, RmsNorm, SiluMul)  # a row of the output needs that row of the inputs and no other


def gather_early(ops: Sequence[PlanOp]) -> list[PlanOp]:
    """Gather rows before the ops that work row by row, not after them: they then compute what is asked for alone.

    In a model it moves the gather in front of all that follows the last layer's attention.
    """
    gathered: dict[SymbolicArray, SymbolicArray] = {}  # what of an array's rows is wanted later on
    read_whole: set[Buffer] = set()  # of which later ops want every row
    backwards: list[PlanOp] = []
    for op in reversed(ops):
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


RULES: tuple[Rule, ...] = (gather_early,)


def apply_rules(recording: Recording, rules: Sequence[Rule] = RULES) -> Recording:
    """The recording after all rules, one after the other."""
    ops = recording.ops
    for rule in rules:
        ops = rule(ops)
    return Recording(ops, recording.result)
