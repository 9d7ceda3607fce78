"""The index, the cache manager and the scheduler under any sequence of calls, each against something simpler."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.core.admission import RequestRejected
from octavo.core.block import Block
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.prefix_index import PrefixIndex
from octavo.core.request import Request
from octavo.sim.checked_engine import CheckedEngine
from octavo.sim.engine_settings import EngineSettings, WeakPrefixIndex
from tests.core.engine_requests import make_request
from tests.core.hypothesis_settings import SHORT

token = st.integers(0, 2)  # few, so that prompts begin alike
prompts = st.lists(token, min_size=1, max_size=12).map(tuple)


class PrefixIndexMachine(RuleBasedStateMachine):
    """The index, with strong keys or weak ones, against a list of (parent, tokens, block)."""

    @initialize(is_weak=st.booleans())
    def start(self, is_weak):
        self.index = (WeakPrefixIndex if is_weak else PrefixIndex)(b"key")
        self.is_weak = is_weak
        self.entries: list[Block] = []
        self.num_blocks = 0

    def key(self, parent: Block | None, token_ids: tuple[int, ...]) -> bytes:
        parent_key = self.index.root_key("") if parent is None else parent.key
        assert parent_key is not None
        return self.index.child_key(parent_key, token_ids)

    def draw_parent(self, data) -> Block | None:
        return data.draw(st.sampled_from([None, *self.entries]))

    @rule(data=st.data(), token_ids=st.tuples(token, token))
    def insert(self, data, token_ids):
        parent = self.draw_parent(data)
        parent_id = parent.node_id if parent else ""
        key = self.key(parent, token_ids)
        block = Block(self.num_blocks)
        self.num_blocks += 1
        is_taken = any(entry.key == key for entry in self.entries)
        if not self.is_weak:
            assert is_taken == any((entry.parent, entry.token_ids) == (parent_id, token_ids) for entry in self.entries)
        assert self.index.insert(block, parent_id, key, token_ids) == (not is_taken)
        if not is_taken:
            self.entries.append(block)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def remove_a_leaf(self, data):
        parents = {entry.parent for entry in self.entries}
        block = data.draw(st.sampled_from([entry for entry in self.entries if entry.node_id not in parents]))
        self.entries.remove(block)
        self.index.remove(block)

    @rule(data=st.data(), token_ids=st.tuples(token, token))
    def find(self, data, token_ids):
        parent = self.draw_parent(data)
        parent_id = parent.node_id if parent else ""
        children = [entry for entry in self.entries if entry.parent == parent_id]
        exact = [entry for entry in children if entry.token_ids == token_ids]
        assert self.index.find(parent_id, self.key(parent, token_ids), token_ids) is (exact[0] if exact else None)
        partial, num_partial = self.index.find_partial(parent_id, token_ids)
        common = [_num_common(entry.token_ids, token_ids) for entry in children]
        assert num_partial == max(common, default=0)
        assert (partial is None) == (num_partial == 0)
        assert partial is None or _num_common(partial.token_ids, token_ids) == num_partial

    @invariant()
    def same_size(self):
        assert len(self.index) == len(self.entries)


def _num_common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b), len(left))


class KVCacheManagerMachine(RuleBasedStateMachine):
    """The manager against slots that hold, each, all tokens up to theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = KVCacheManager(6, block_size=2, hash_key=b"key")
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}
        self.requests: list[Request] = []
        self.num_promised: dict[int, int] = {}

    @rule(prompt=prompts, num_spare=st.integers(0, 2))
    def admit(self, prompt, num_spare):
        request = Request(make_request("r", prompt), 0, (0, 0, 0), 100)
        num_free = self.kv.num_available
        num_hit = self.kv.admit(request, self.kv.find_hit(request), request.num_tokens, num_spare)
        if num_hit is None:
            assert self.kv.num_available == num_free
            assert request.block_table.blocks == []
            return
        assert self.kv.num_available >= num_spare
        assert num_hit == request.num_computed_tokens < request.num_tokens
        self.requests.append(request)
        for source, destination in self.kv.take_copies():
            for offset in range(2):
                self.slots[destination, offset] = self.slots.get((source, offset), ())
        self.read(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), num_new=st.integers(1, 4), next_token=token)
    def compute(self, data, num_new, next_token):
        request = data.draw(st.sampled_from(self.requests))
        if request.num_computed_tokens == request.num_tokens:
            request.token_ids.append(next_token)
        end = min(request.num_tokens, request.num_computed_tokens + num_new)
        is_promised = self.kv.num_blocks_for(end) <= request.block_table.num_promised
        if not self.kv.grow(request, end):
            assert not is_promised
            return
        for position in range(request.num_computed_tokens, end):
            block = request.block_table.blocks[position // 2]
            assert (block.ref_count, block.key) == (1, None)
            self.slots[block.block_id, position % 2] = tuple(request.token_ids[: position + 1])
        request.num_computed_tokens = end
        self.kv.publish(request)
        assert request.block_table.num_published == end // 2

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free(self, data):
        request = data.draw(st.sampled_from(self.requests))
        self.kv.free(request)
        self.requests.remove(request)

    @invariant()
    def every_slot_holds_its_prefix(self):
        for request in self.requests:
            self.read(request)

    @invariant()
    def books_are_balanced(self):
        holders = Counter(block for request in self.requests for block in request.block_table.blocks)
        assert [holders[block] for block in self.kv.pool.blocks] == [block.ref_count for block in self.kv.pool.blocks]
        num_owed = sum(request.block_table.num_owed for request in self.requests)
        assert self.kv.num_available == self.kv.pool.num_free - num_owed >= 0
        assert self.kv.pool.num_free == 6 - len(holders)

    def read(self, request: Request) -> None:
        for position in range(request.num_computed_tokens):
            block = request.block_table.blocks[position // 2]
            assert self.slots[block.block_id, position % 2] == tuple(request.token_ids[: position + 1])


class SchedulerMachine(RuleBasedStateMachine):
    """The whole loop over the ledger model, which checks everything."""

    @initialize(
        num_blocks=st.integers(2, 8),
        max_num_batched_tokens=st.integers(1, 8),
        max_num_seqs=st.integers(1, 4),
        enable_prefix_caching=st.booleans(),
        policy=st.sampled_from(["fcfs", "priority", "fair"]),
    )
    def start(self, **sizes):
        self.engine = CheckedEngine(EngineSettings(block_size=2, max_model_len=14, **sizes), vocab_size=5)
        self.num_requests = 0

    @rule(prompt=prompts, n=st.integers(1, 3), max_tokens=st.integers(1, 8), priority=st.integers(0, 1))
    def add(self, prompt, n, max_tokens, priority):
        self.num_requests += 1
        request = make_request(f"{self.num_requests}", prompt, n=n, max_tokens=max_tokens, priority=priority, eos=(0,))
        try:
            self.engine.add(request)
        except RequestRejected:
            assert len(prompt) + max_tokens - 1 > 2 * self.engine.scheduler.kv.pool.num_blocks

    @precondition(lambda self: self.engine.scheduler.has_unfinished)
    @rule(data=st.data(), is_one_choice=st.booleans())
    def abort(self, data, is_one_choice):
        request = data.draw(st.sampled_from(list(self.engine.scheduler.requests())))
        self.engine.abort(request.request_id, request.index if is_one_choice else None)

    @rule(num_steps=st.integers(1, 5))
    def step(self, num_steps):
        for _ in range(num_steps):
            self.engine.step()

    def teardown(self):
        if hasattr(self, "engine"):
            self.engine.drain()


for machine in (PrefixIndexMachine, KVCacheManagerMachine, SchedulerMachine):
    machine.TestCase.settings = SHORT
TestPrefixIndex = PrefixIndexMachine.TestCase
TestKVCacheManager = KVCacheManagerMachine.TestCase
TestScheduler = SchedulerMachine.TestCase
