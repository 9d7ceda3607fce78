"""Block: one unit of KV memory."""

from __future__ import annotations

Parent = int | str  # node_id of the block before, or the cache salt for the first block of a sequence


class Block:
    """One unit of KV memory: `block_size` tokens of K and V of every layer."""

    __slots__ = ("block_id", "key", "next_free", "node_id", "parent", "previous_free", "ref_count", "token_ids")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        # Set while the block is in the prefix index, whose alone they are to change:
        self.key: bytes | None = None
        self.node_id = 0
        self.parent: Parent = ""
        self.token_ids: tuple[int, ...] = ()
        # Links of the free queue:
        self.previous_free: Block | None = None
        self.next_free: Block | None = None
