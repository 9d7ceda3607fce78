from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.core.block import Block
from octavo.core.block_pool import BlockPool, FreeQueue
from octavo.core.prefix_index import PrefixIndex
from tests.core.hypothesis_settings import SHORT


def ids(blocks) -> list[int]:
    return [block.block_id for block in blocks]


class FreeQueueMachine(RuleBasedStateMachine):
    """The linked list against a plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FreeQueue()
        self.inside: list[Block] = []
        self.outside = [Block(i) for i in range(5)]

    @precondition(lambda self: self.outside)
    @rule(data=st.data(), is_left=st.booleans())
    def put(self, data, is_left):
        block = self.outside.pop(data.draw(st.integers(0, len(self.outside) - 1)))
        if is_left:
            self.queue.append_left(block)
            self.inside.insert(0, block)
        else:
            self.queue.append(block)
            self.inside.append(block)

    @precondition(lambda self: self.inside)
    @rule()
    def pop(self):
        block = self.queue.pop_left()
        assert block is self.inside.pop(0)
        self.outside.append(block)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def remove(self, data):
        block = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.queue.remove(block)
        self.outside.append(block)

    @precondition(lambda self: not self.inside)
    @rule()
    def pop_from_empty(self):
        with pytest.raises(IndexError, match="no KV block is free"):
            self.queue.pop_left()

    @invariant()
    def same(self):
        assert ids(self.queue) == ids(self.inside)
        assert len(self.queue) == len(self.inside)


TestFreeQueue = FreeQueueMachine.TestCase
TestFreeQueue.settings = SHORT


class BlockPoolMachine(RuleBasedStateMachine):
    """The pool against a counter of holders and a list of free blocks in order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(4, PrefixIndex(b"key"))
        self.num_holders = [0] * 4
        self.free = [0, 1, 2, 3]
        self.cached: set[int] = set()
        self.num_contents = 0

    @precondition(lambda self: self.free)
    @rule()
    def allocate(self):
        block = self.pool.allocate()
        assert block.block_id == self.free.pop(0)
        assert block.key is None
        self.cached.discard(block.block_id)
        self.num_holders[block.block_id] = 1

    @rule(block_id=st.integers(0, 3))
    def share(self, block_id):
        if self.num_holders[block_id] or block_id in self.cached:
            self.pool.share(self.pool.blocks[block_id])
            self.num_holders[block_id] += 1
            if block_id in self.free:
                self.free.remove(block_id)

    @rule(block_id=st.integers(0, 3))
    def cache(self, block_id):
        if self.num_holders[block_id] and block_id not in self.cached:
            self.num_contents += 1
            content = (self.num_contents,)
            assert self.pool.index.insert(
                self.pool.blocks[block_id], "", self.pool.index.child_key(b"", content), content
            )
            self.cached.add(block_id)

    @rule(block_id=st.integers(0, 3))
    def release(self, block_id):
        if self.num_holders[block_id]:
            self._let_go(block_id)
            self.pool.release(self.pool.blocks[block_id])

    @rule(block_ids=st.lists(st.integers(0, 3), unique=True))
    def release_all(self, block_ids):
        held = [block_id for block_id in block_ids if self.num_holders[block_id]]
        for block_id in reversed(held):
            self._let_go(block_id)
        self.pool.release_all([self.pool.blocks[block_id] for block_id in held])

    def _let_go(self, block_id: int) -> None:
        self.num_holders[block_id] -= 1
        if self.num_holders[block_id] == 0:
            self.free.insert(len(self.free) if block_id in self.cached else 0, block_id)

    @invariant()
    def same(self):
        assert ids(self.pool.free_blocks()) == self.free
        assert self.pool.num_free == len(self.free)
        assert [block.ref_count for block in self.pool.blocks] == self.num_holders
        assert len(self.pool.index) == len(self.cached)


TestBlockPool = BlockPoolMachine.TestCase
TestBlockPool.settings = SHORT


def test_a_pool_needs_a_block():
    with pytest.raises(ValueError, match="num_blocks is 0; a pool needs at least 1"):
        BlockPool(0, PrefixIndex(b"key"))


def test_misuse_is_an_assertion():
    pool = BlockPool(2, PrefixIndex(b"key"))
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError, match="block 0 is released more often than it is held"):
        pool.release(block)
    queue = FreeQueue()
    queue.append(Block(7))
    with pytest.raises(AssertionError, match="block 7 is free already"):
        queue.append(next(iter(queue)))
    with pytest.raises(AssertionError, match="block 8 is not free"):
        queue.remove(Block(8))


def test_allocation_evicts_the_least_recently_released_cached_block_after_all_empty_ones():
    index = PrefixIndex(b"key")
    pool = BlockPool(4, index)
    first, second, empty, _ = [pool.allocate() for _ in range(4)]
    for number, block in enumerate((first, second)):
        index.insert(block, "", bytes([number]), (number,))
    pool.release(second)
    pool.release(first)
    pool.release(empty)
    assert [pool.allocate() for _ in range(3)] == [empty, second, first]
    assert pool.num_evictions == 2
    assert len(index) == 0
