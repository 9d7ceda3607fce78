"""How many bytes a matrix takes once it is packed: the arithmetic of csrc's panels, without the matrix."""

from __future__ import annotations

from collections.abc import Sequence

PANEL = 16  # outputs that lie side by side
GROUP = 32  # inputs that share a scale
SCALE_BYTES = 2  # of each output and group; a minimum takes as much


def packed_bytes(
    kind: str, formats: Sequence[str], *, num_outputs: int, num_inputs: int, has_bias: bool = False
) -> int:
    """Bytes of a matrix of one of weight_kinds.KINDS whose parts are stored in these formats, and of its bias."""
    num_panels, num_groups = -(-num_outputs // PANEL), -(-num_inputs // GROUP)
    has_minimum = kind == "int4" and set(formats) != {"Q4_0"}
    row_bytes = {
        "float32": 4 * num_inputs,
        "bfloat16": 2 * (num_inputs + num_inputs % 2),  # two inputs lie side by side
        "int8": num_groups * (GROUP + SCALE_BYTES),
        "int4": num_groups * (GROUP // 2 + SCALE_BYTES * (1 + has_minimum)),
    }[kind]
    return num_panels * PANEL * (row_bytes + 4 * has_bias)
