"""BlockTable: the blocks of one sequence, in order, and what the manager knows about them."""

from __future__ import annotations

from octavo.core.block import Block


class BlockTable:
    """The blocks that hold a sequence's KV. Only KVCacheManager changes it."""

    __slots__ = ("blocks", "changed_from", "num_promised", "num_published")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.num_published = 0  # leading blocks that stand in the prefix index
        self.num_promised = 0  # blocks the sequence may come to without asking whether any is free
        self.changed_from = 0  # first entry the worker does not know yet

    @property
    def num_owed(self) -> int:
        """Promised blocks not yet taken."""
        return max(0, self.num_promised - len(self.blocks))

    def take_change(self) -> tuple[int, tuple[int, ...]]:
        """Return (start, block_ids): from `start` on the table now reads `block_ids`. The worker is told once."""
        start = min(self.changed_from, len(self.blocks))
        self.changed_from = len(self.blocks)
        return start, tuple([block.block_id for block in self.blocks[start:]])
