"""How many bytes a matrix takes once it is packed: the arithmetic of csrc's panels, without the matrix."""

from __future__ import annotations

from dataclasses import dataclass

PANEL = 16  # outputs that lie side by side
GROUP = 32  # inputs whose codes lie together
SCALE_BYTES = 2  # of each output and group of inputs that share one; a minimum takes as much
INDEX_BYTES = 4


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix of one of weight_kinds.KINDS, with its bias."""

    kind: str
    num_outputs: int
    num_inputs: int
    has_bias: bool = False
    has_minimum: bool = False  # of int8 and int4: beside each scale
    group_size: int = GROUP  # inputs that share a scale in the file
    has_order: bool = False  # whether inputs are sorted by their groups

    @property
    def num_bytes(self) -> int:
        """Bytes of all of it."""
        num_groups = -(-self.num_inputs // GROUP)
        scales_bytes = SCALE_BYTES * (1 + self.has_minimum) * -(-num_groups // self._groups_of_a_scale(num_groups))
        row_bytes = {
            "float32": 4 * self.num_inputs,
            "bfloat16": 2 * (self.num_inputs + self.num_inputs % 2),  # two inputs lie side by side
            "int8": num_groups * GROUP + scales_bytes,
            "int4": num_groups * GROUP // 2 + scales_bytes,
        }[self.kind]
        num_padded = -(-self.num_outputs // PANEL) * PANEL
        return num_padded * (row_bytes + 4 * self.has_bias) + INDEX_BYTES * self.num_inputs * self.has_order

    def _groups_of_a_scale(self, num_groups: int) -> int:
        """A power of two: as many as all share a scale, as StoredMatrix::group_shift has it."""
        count = 1
        while count < num_groups and (self.group_size >= self.num_inputs or self.group_size % (2 * count * GROUP) == 0):
            count *= 2
        return count
