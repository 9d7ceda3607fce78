"""What must hold of the live scheduler at every step. Each function raises InvariantError with the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.messages import ScheduledRow, SchedulerOutput
from octavo.core.request import Request, RequestStatus
from octavo.core.scheduler import MAX_PREEMPTIONS, Scheduler


class InvariantError(AssertionError):
    """The scheduler's books contradict themselves."""


def require(holds: bool, *facts: object) -> None:
    """Raise InvariantError with the facts unless `holds`. Facts are joined only then: this runs at every step."""
    if not holds:
        raise InvariantError(" ".join(map(str, facts)))


def check_pool(scheduler: Scheduler) -> None:
    """Reference counts equal holders; every block is held or free, and free once; promises are covered."""
    pool = scheduler.kv.pool
    tables = [request.block_table for request in scheduler.requests()]
    num_holders = Counter(block.block_id for table in tables for block in table.blocks)
    for block in pool.blocks:
        holders = num_holders[block.block_id]
        require(block.ref_count == holders, "block", block.block_id, "counts", block.ref_count, "holders of", holders)
    free_ids = [block.block_id for block in islice(pool.free_blocks(), pool.num_blocks + 1)]
    require(len(free_ids) == pool.num_free, "the free queue holds", free_ids, "and counts", pool.num_free)
    require(len(set(free_ids)) == len(free_ids), "a block is free twice:", free_ids)
    require(not num_holders.keys() & set(free_ids), "a table names a free block:", num_holders, free_ids)
    require(len(free_ids) + len(num_holders) == pool.num_blocks, "blocks are lost:", free_ids, num_holders)
    num_owed = sum(table.num_owed for table in tables)
    require(pool.num_free - scheduler.kv.num_available == num_owed, "the tables are owed", num_owed, "blocks in all")
    require(num_owed <= pool.num_free, num_owed, "blocks are promised and", pool.num_free, "are free")


def check_index(kv: KVCacheManager, *, has_collisions: bool) -> None:
    """The index holds the keyed blocks, each under its own key, and never a child whose parent it has lost."""
    keyed = [block for block in kv.pool.blocks if block.key is not None]
    node_ids = {block.node_id for block in keyed}
    require(len(kv.index) == len(keyed), "the index has", len(kv.index), "entries for", len(keyed), "keyed blocks")
    require(len(node_ids) == len(keyed), "two cached blocks are one node")
    for block in keyed:
        assert block.key is not None
        found = kv.index.find(block.parent, block.key, block.token_ids)
        require(found is block, "block", block.block_id, "is keyed and not found under its key")
        require(len(block.token_ids) == kv.block_size, "block", block.block_id, "is cached and not full")
        # A refused key ends a sequence's cached prefix anywhere, so collisions may leave a child on its own.
        is_rooted = isinstance(block.parent, str) or block.parent in node_ids or has_collisions
        require(is_rooted, "block", block.block_id, "is cached after a node that is gone")


def check_requests(scheduler: Scheduler) -> None:
    """Statuses, rows, queues and tables of all requests agree."""
    running = scheduler.running
    keys = [request.queue_key for request in running]
    rows = {request.row for request in running}
    require(keys == sorted(keys), "running requests are out of order:", keys)
    require(len(rows) == len(running), "a row is used twice:", [request.row for request in running])
    num_running = num_waiting = 0
    for request in scheduler.requests():
        status, table = request.status, request.block_table
        num_running += status is RequestStatus.RUNNING
        num_waiting += status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        require(status is not RequestStatus.FINISHED, "a finished request is kept:", request.request_id)
        require(request.num_preemptions <= MAX_PREEMPTIONS, "preempted", request.num_preemptions, "times")
        if status is RequestStatus.RUNNING:
            require(request in running and request.row >= 0, request.request_id, "runs and has no row")
            continue
        is_bare = not table.blocks and not table.num_owed and request.row < 0 and not request.num_computed_tokens
        require(is_bare, request.request_id, "is", status, "and has blocks or a row")
        if status is RequestStatus.FORKING:
            leader = request.fork_source
            is_alive = leader is not None and leader.status is not RequestStatus.FINISHED and request in leader.siblings
            require(is_alive, "choice", request.index, "waits for a fork that will not come")
    require(num_running == len(running), num_running, "requests run, the list has", len(running))
    require(num_waiting == len(scheduler.waiting), num_waiting, "requests wait, the queue has", len(scheduler.waiting))


def check_published(kv: KVCacheManager, running: Sequence[Request], *, has_collisions: bool) -> None:
    """Between steps, every full computed block of a running request stands in the index, after its parent."""
    for request in running:
        table = request.block_table
        num_full = min(request.num_computed_tokens, request.num_tokens) // kv.block_size
        if not kv.enable_prefix_caching:
            num_full = 0
        is_published = table.num_published == num_full or (has_collisions and table.num_published < num_full)
        require(is_published, request.request_id, "has", num_full, "full blocks,", table.num_published, "in the index")
        parent: int | str = request.cache_salt
        for position, block in enumerate(table.blocks[: table.num_published]):
            start = position * kv.block_size
            token_ids = tuple(request.token_ids[start : start + kv.block_size])
            is_right = block.key is not None and block.parent == parent and block.token_ids == token_ids
            require(is_right, request.request_id, "holds at", position, "block", block.block_id, "of other content")
            parent = block.node_id


def check_plan(scheduler: Scheduler, scheduled: SchedulerOutput, *, max_drafts: int) -> None:
    """A step about to be executed writes only what is its requests' own, and everybody gets a turn."""
    request_by_row = {request.row: request for request in scheduler.running}
    rows = {entry.row for entry in scheduled.scheduled}
    new_rows = {new_row.row for new_row in scheduled.new_rows}
    num_turns = min(len(request_by_row), scheduler.max_num_batched_tokens)
    require(len(rows) >= num_turns, len(rows), "rows run,", num_turns, "could")
    for entry in scheduled.scheduled:
        request = request_by_row.get(entry.row)
        if request is None:
            raise InvariantError(f"row {entry.row} is scheduled and nobody runs in it")
        _check_run(scheduler.kv, request, entry, max_drafts)
        if request.num_preemptions >= MAX_PREEMPTIONS:
            needed = scheduler.kv.num_blocks_for(request.max_total_tokens - 1)
            require(request.block_table.num_promised >= needed, request.request_id, "was not promised all it needs")
        if entry.row in new_rows:
            require(request.num_computed_tokens < request.num_tokens, request.request_id, "has nothing to compute")
            num_cached = request.num_cached_tokens
            is_short = num_cached is not None and num_cached < request.num_prompt_tokens
            require(is_short, "cached tokens", num_cached, "of a prompt of", request.num_prompt_tokens)
    for new_row in scheduled.new_rows:
        request = request_by_row[new_row.row]
        told = (list(new_row.token_ids), new_row.num_prompt_tokens, new_row.seed, new_row.stop_token_ids)
        known = (request.token_ids, request.num_prompt_tokens, request.seed, request.end_token_ids)
        require(told == known, "row", new_row.row, "was told", told, "for", known)


def _check_run(kv: KVCacheManager, request: Request, entry: ScheduledRow, max_drafts: int) -> None:
    size = kv.block_size
    blocks = request.block_table.blocks
    first, end = entry.num_computed_tokens, entry.num_computed_tokens + entry.num_scheduled_tokens
    require(first == request.num_computed_tokens, entry, "begins elsewhere than", request.num_computed_tokens)
    require(end <= request.num_tokens_with_drafts, entry, "runs past the end,", request.num_tokens_with_drafts)
    num_wasted = len(blocks) * size - end
    require(0 <= num_wasted < size + max_drafts, request.request_id, "wastes", num_wasted, "slots")
    for block in blocks[first // size : (end - 1) // size + 1]:
        is_own = block.ref_count == 1 and block.key is None
        require(is_own, entry, "writes block", block.block_id, "held", block.ref_count, "times, key", block.key)


def check_preempted(preempted: Sequence[Request], running: Sequence[Request]) -> None:
    """Who lost its blocks is younger than all who kept theirs, but for those that may not be preempted again."""
    for request in running:
        if request.num_preemptions < MAX_PREEMPTIONS:
            for victim in preempted:
                is_younger = victim.queue_key > request.queue_key
                require(is_younger, victim.request_id, "was preempted before the younger", request.request_id)


def check_drained(scheduler: Scheduler) -> None:
    """Nothing is left of anybody."""
    pool = scheduler.kv.pool
    require(not list(scheduler.requests()) and not scheduler.running, "requests are left")
    require(len(scheduler.waiting) == 0, len(scheduler.waiting), "requests wait for ever")
    require(
        pool.num_free == pool.num_blocks == scheduler.kv.num_available, pool.num_blocks - pool.num_free, "blocks leak"
    )
