"""FilledSlots: how far each block holds a draft model's KV."""

from __future__ import annotations

import numpy as np

from octavo.backends.ops import Int32Array
from octavo.core.messages import ScheduledRow, SchedulerOutput


class FilledSlots:
    """How many leading slots of each block hold the draft model's KV of the tokens that stand there.

    The draft model's blocks are the target's, by the same ids: shared, copied and freed with these. A token's KV
    follows from the tokens before it alone, so it does not matter for which of the sequences that share a block a
    slot was filled. Nobody fills one before it is needed.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._num_filled = np.zeros(num_blocks, np.int32)

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Take in a step's blocks: copies hold what their sources hold, new blocks nothing."""
        for source, destination in scheduled.block_copies:
            self._num_filled[destination] = self._num_filled[source]
        for entry in scheduled.scheduled:
            if entry.block_ids:
                self._enter(entry)

    def first_gap(self, block_ids: Int32Array, num_tokens: int) -> int:
        """The first of these tokens that has no KV in a sequence's blocks; `num_tokens` if all have."""
        is_full = self._num_filled[block_ids] >= self._block_size
        position = len(block_ids) if is_full.all() else int(is_full.argmin())
        in_block = 0 if position == len(block_ids) else int(self._num_filled[block_ids[position]])
        return min(position * self._block_size + in_block, num_tokens)

    def fill(self, block_ids: Int32Array, first: int, end: int) -> None:
        """The tokens [first, end) get their KV, those that have a place in the blocks; all before them have theirs."""
        end = min(end, len(block_ids) * self._block_size)
        for position in range(first // self._block_size, -(-end // self._block_size)):
            block_id = block_ids[position]
            num_filled = min(self._block_size, end - position * self._block_size)
            self._num_filled[block_id] = max(self._num_filled[block_id], num_filled)

    def _enter(self, entry: ScheduledRow) -> None:
        """Blocks that a row was given: computed ones that it shares, a copy of part of one, new ones."""
        num_shared, num_in_copy = divmod(entry.num_computed_tokens, self._block_size)
        for position, block_id in enumerate(entry.block_ids, entry.block_start):
            if position == num_shared:
                self._num_filled[block_id] = min(self._num_filled[block_id], num_in_copy)
            elif position > num_shared:
                self._num_filled[block_id] = 0
