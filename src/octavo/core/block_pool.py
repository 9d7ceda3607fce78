"""BlockPool: who holds which KV block. Only the pool changes a reference count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.core.block import Block
from octavo.core.prefix_index import PrefixIndex


class FreeQueue:
    """Doubly linked list of the blocks nobody holds, next to be used first. Every operation is O(1)."""

    def __init__(self) -> None:
        self._ends = Block(-1)  # a ring through one sentinel has no special cases
        self._ends.previous_free = self._ends.next_free = self._ends
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Block]:
        block = self._ends.next_free
        while block is not None and block is not self._ends:
            yield block
            block = block.next_free

    def append(self, block: Block) -> None:
        """Put a block where it is used last."""
        self._insert_before(self._ends, block)

    def append_left(self, block: Block) -> None:
        """Put a block where it is used next."""
        first = self._ends.next_free
        assert first is not None
        self._insert_before(first, block)

    def pop_left(self) -> Block:
        """Take the block to use next. Raises IndexError when there is none."""
        block = self._ends.next_free
        if block is None or block is self._ends:
            raise IndexError("no KV block is free; check num_free before allocating")
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        """Take a block out of the middle."""
        before, after = block.previous_free, block.next_free
        assert before is not None and after is not None, f"block {block.block_id} is not free"
        before.next_free, after.previous_free = after, before
        block.previous_free = block.next_free = None
        self._length -= 1

    def _insert_before(self, after: Block, block: Block) -> None:
        assert block.next_free is None, f"block {block.block_id} is free already"
        before = after.previous_free
        assert before is not None
        before.next_free = after.previous_free = block
        block.previous_free, block.next_free = before, after
        self._length += 1


class BlockPool:
    """All blocks: a free queue in order of eviction, reference counts, and the prefix index over their content.

    A free block may still be in the index; it can be shared again until it is allocated to somebody else.
    """

    def __init__(self, num_blocks: int, index: PrefixIndex) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; a pool needs at least 1")
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.index = index
        self.num_evictions = 0
        self._free = FreeQueue()
        for block in self.blocks:
            self._free.append(block)

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self.blocks)

    @property
    def num_free(self) -> int:
        """Blocks nobody holds, cached ones included."""
        return len(self._free)

    def free_blocks(self) -> Iterator[Block]:
        """Iterate over the free blocks, next to be used first."""
        return iter(self._free)

    def allocate(self) -> Block:
        """Take the next free block for writing, evicting what it had cached. Raises IndexError when none is free."""
        block = self._free.pop_left()
        if block.key is not None:
            self.index.remove(block)
            self.num_evictions += 1
        block.ref_count = 1
        return block

    def share(self, block: Block) -> None:
        """Add a holder to a block whose content stays as it is."""
        if block.ref_count == 0:
            self._free.remove(block)
        block.ref_count += 1

    def release(self, block: Block) -> None:
        """Remove a holder. A block without holders is free: last in the queue if cached, else next to be used."""
        assert block.ref_count > 0, f"block {block.block_id} is released more often than it is held"
        block.ref_count -= 1
        if block.ref_count == 0:
            if block.key is None:
                self._free.append_left(block)
            else:
                self._free.append(block)

    def release_all(self, blocks: Sequence[Block]) -> None:
        """Release a sequence's blocks, the tail first: a prefix is evicted after what continues it."""
        for block in reversed(blocks):
            self.release(block)
