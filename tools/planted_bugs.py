"""One-line bugs that people make in schedulers and caches; `tools/mutants.py` sees that each is noticed."""

from __future__ import annotations

from typing import NamedTuple


class PlantedBug(NamedTuple):
    """One place in the source and what to write there instead. `original` must occur exactly once in the file."""

    file: str  # under src/octavo/core
    original: str
    planted: str
    what: str


BLOCK_POOL = [
    PlantedBug(
        "block_pool.py",
        "self.index.remove(block)",
        "block.key = None",
        "a reused block stays in the index under its old key",
    ),
    PlantedBug("block_pool.py", "self._free.remove(block)", "pass", "a revived block stays in the free queue"),
    PlantedBug(
        "block_pool.py",
        "else:\n                self._free.append(block)",
        "else:\n                self._free.append_left(block)",
        "cached blocks are evicted newest first",
    ),
    PlantedBug("block_pool.py", "in reversed(blocks)", "in blocks", "heads are evicted before their tails"),
    PlantedBug(
        "block_pool.py", "self._length -= 1", "self._length -= 0", "the free queue does not count what leaves it"
    ),
    PlantedBug("block_pool.py", "block.ref_count += 1", "block.ref_count = 1", "a second holder is not counted"),
]

PREFIX_INDEX = [
    PlantedBug("prefix_index.py", " or block.parent != parent", "", "the parent is not compared on a hit"),
    PlantedBug("prefix_index.py", " or block.token_ids != token_ids", "", "the tokens are not compared on a hit"),
    PlantedBug(
        "prefix_index.py",
        "if key in self._block_by_key:",
        "if self._block_by_key.get(key) is block:",
        "a colliding key takes another block's place",
    ),
    PlantedBug("prefix_index.py", "del siblings[block.block_id]", "pass", "an evicted block stays a partial candidate"),
    PlantedBug("prefix_index.py", "self._next_node_id += 1", "pass", "nodes share an id"),
    PlantedBug(
        "prefix_index.py",
        "length = equal_prefix_length(block.token_ids, token_ids)",
        "length = len(token_ids)",
        "a partial match is taken to be a whole one",
    ),
    PlantedBug("prefix_index.py", '+ salt.encode("utf-8", "surrogatepass")', "", "the key leaves the salt out"),
    PlantedBug("prefix_index.py", '"node\\0" + parent_key', '"node\\0"', "the key leaves the parent out"),
]

BLOCK_TABLE = [
    PlantedBug(
        "block_table.py",
        "self.changed_from = len(self.blocks)",
        "self.changed_from = len(self.blocks) + 1",
        "the worker misses the first new block",
    ),
    PlantedBug(
        "block_table.py",
        "max(0, self.num_promised - len(self.blocks))",
        "self.num_promised - len(self.blocks)",
        "who grew beyond a promise owes blocks",
    ),
]

KV_CACHE_MANAGER = [
    PlantedBug("kv_cache_manager.py", "if request.has_prompt_logprobs:", "if False:", "a prompt to score is a hit"),
    PlantedBug(
        "kv_cache_manager.py",
        "-(-num_tokens // self.block_size)",
        "num_tokens // self.block_size + 1",
        "a full block needs one more",
    ),
    PlantedBug(
        "kv_cache_manager.py", "limit = request.num_tokens - 1", "limit = request.num_tokens", "a whole prompt is a hit"
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "source.num_computed_tokens >= limit",
        "source.num_computed_tokens > 0",
        "forked from a leader that has not computed the prompt",
    ),
    PlantedBug("kv_cache_manager.py", "needed + num_spare <=", "needed <=", "admission leaves nothing to grow into"),
    PlantedBug(
        "kv_cache_manager.py",
        "self.pool.num_free - self._num_owed",
        "self.pool.num_free",
        "promised blocks are given away",
    ),
    PlantedBug("kv_cache_manager.py", "self._num_owed -= num_owed", "pass", "a promise is kept and still owed"),
    PlantedBug("kv_cache_manager.py", "self._num_owed -= table.num_owed", "pass", "a promise is not returned"),
    PlantedBug(
        "kv_cache_manager.py",
        "num_missing - num_owed > self.num_available",
        "num_missing - num_owed >= self.num_available",
        "the last free block is never used",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "release_all(table.blocks)",
        "release_all(table.blocks[:-1])",
        "the half-filled last block leaks",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "table.num_promised = table.changed_from = 0",
        "table.num_promised = 0",
        "a new row misses its first blocks",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "min(request.num_computed_tokens, request.num_tokens)",
        "request.num_tokens",
        "blocks are published before they are computed",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "min(request.num_computed_tokens, request.num_tokens)",
        "request.num_computed_tokens",
        "drafts beyond the end are published",
    ),
    PlantedBug("kv_cache_manager.py", "table.num_published += 1", "pass", "what is published is not counted"),
    PlantedBug(
        "kv_cache_manager.py",
        "return  # the key collides",
        "pass  # the key collides",
        "a collision counts as published",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "parent = block.node_id",
        "pass",
        "a second block is looked up under the first one's parent",
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "min(start + self.block_size, limit)",
        "start + self.block_size",
        "a partial hit leaves nothing to compute",
    ),
    PlantedBug(
        "kv_cache_manager.py", " - num_shared + num_revived", " - num_shared", "a revived block is not counted as taken"
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "if hit.num_tokens % self.block_size:",
        "if hit.num_tokens % self.block_size and hit.blocks[-1].ref_count > 1:",
        "a cached block is written because nobody holds it",
    ),
    PlantedBug("kv_cache_manager.py", "self.pool.release(source)", "pass", "the source of a copy stays held"),
    PlantedBug(
        "kv_cache_manager.py",
        "(source.block_id, blocks[-1].block_id)",
        "(blocks[-1].block_id, source.block_id)",
        "a copy goes backwards",
    ),
    PlantedBug("kv_cache_manager.py", "self._copies.clear()", "pass", "copies are made again at every step"),
    PlantedBug(
        "kv_cache_manager.py", "tuple(self._copies)", "tuple(self._copies[::-1])", "copies are made in the wrong order"
    ),
    PlantedBug(
        "kv_cache_manager.py",
        "table.changed_from = min(table.changed_from, position)",
        "pass",
        "the worker is not told of a re-pointed block",
    ),
    PlantedBug("kv_cache_manager.py", "self.pool.share(twin)", "pass", "the canonical block is not held"),
    PlantedBug("kv_cache_manager.py", "self.pool.release(duplicate)", "pass", "the duplicate leaks"),
    PlantedBug("kv_cache_manager.py", "keys[-1] if keys else self", "self", "keys do not chain"),
    PlantedBug(
        "kv_cache_manager.py",
        " and hit.blocks[num_published].key is not None",
        "",
        "blocks of a fork count as published",
    ),
]

WAITING_QUEUE = [
    PlantedBug(
        "waiting_queue.py",
        "while self._heap[0][0] not in",
        "if self._heap[0][0] not in",
        "only one stale entry is dropped",
    ),
    PlantedBug("waiting_queue.py", "> 2 * len(self._waiting) + 16", "< 0", "stale entries pile up"),
]

REQUEST = [
    PlantedBug("request.py", "(source.seed + index) % 2**SEED_BITS", "source.seed", "all choices draw alike"),
    PlantedBug(
        "request.py", "(source.seed + index) % 2**SEED_BITS", "source.seed + index", "a seed grows beyond 64 bits"
    ),
    PlantedBug("request.py", ">= self.sampling_params.min_tokens", ">= 0", "min_tokens is ignored"),
    PlantedBug("request.py", " and self.num_output_tokens == 0", "", "a prompt is scored again after a preemption"),
    PlantedBug("request.py", " and self.index == 0", "", "every choice scores the prompt"),
    PlantedBug(
        "request.py",
        ">= self.sampling_params.min_tokens",
        "> self.sampling_params.min_tokens",
        "min_tokens is one more",
    ),
    PlantedBug(
        "request.py",
        "() if params.ignore_eos else source.eos_token_ids",
        "source.eos_token_ids",
        "ignore_eos is ignored",
    ),
    PlantedBug(
        "request.py",
        "ignore_eos else source.eos_token_ids",
        "ignore_eos else source.eos_token_ids[:1]",
        "only the first end token ends",
    ),
    PlantedBug(
        "request.py",
        " and token_id not in self.sampling_params.stop_token_ids",
        "",
        "a stop token does not name itself",
    ),
    PlantedBug(
        "request.py",
        "len(self.token_ids) >= self.max_total_tokens",
        "len(self.token_ids) > self.max_total_tokens",
        "one token too many",
    ),
]

SCHEDULER = [
    PlantedBug("scheduler.py", "max(1, budget - num_left)", "budget", "a long chunk starves who runs behind it"),
    PlantedBug(
        "scheduler.py",
        "budget -= num_tokens\n        while",
        "budget -= 2 * num_tokens\n        while",
        "running tokens are counted twice",
    ),
    PlantedBug(
        "scheduler.py",
        "budget -= num_tokens\n        return",
        "budget -= 1\n        return",
        "a prompt counts as one token",
    ),
    PlantedBug(
        "scheduler.py",
        " and self.totals.num_preemptions == num_preemptions",
        "",
        "who was preempted is admitted in the same step",
    ),
    PlantedBug(
        "scheduler.py",
        "num_drafts + 1 - len(sampled.token_ids)",
        "0",
        "rejected drafts are not subtracted",
    ),
    PlantedBug("scheduler.py", "in reversed(self.running)", "in self.running", "the oldest is preempted first"),
    PlantedBug(
        "scheduler.py",
        "candidate is request or candidate.num_preemptions < MAX_PREEMPTIONS",
        "True",
        "preempted without end",
    ),
    PlantedBug(
        "scheduler.py",
        "request.draft_token_ids = ()\n        self.totals.num_preemptions += 1",
        "self.totals.num_preemptions += 1",
        "drafts outlive a preemption",
    ),
    PlantedBug(
        "scheduler.py",
        "request.max_total_tokens - 1 if is_last_try else request.num_tokens",
        "request.num_tokens",
        "the last try is promised no more than any",
    ),
    PlantedBug(
        "scheduler.py", "request.fork_source = None", "pass", "a fork that comes back takes its leader's tokens"
    ),
    PlantedBug(
        "scheduler.py", "if request.num_cached_tokens is None:", "if True:", "cached tokens count recomputed output"
    ),
    PlantedBug(
        "scheduler.py",
        'insort(self.running, request, key=attrgetter("queue_key"))',
        "self.running.append(request)",
        "a returning elder runs last",
    ),
    PlantedBug("scheduler.py", "is_sampled = end >= request.num_tokens", "is_sampled = True", "every chunk is sampled"),
    PlantedBug(
        "scheduler.py", "sampled.token_ids[:num_new]", "sampled.token_ids", "tokens are delivered beyond the end"
    ),
    PlantedBug(
        "scheduler.py",
        "request.max_total_tokens - request.num_tokens - 1",
        "request.max_total_tokens - request.num_tokens",
        "one draft too many",
    ),
    PlantedBug("scheduler.py", "if index in (None, request.index)", "if True", "an abort of one choice ends all"),
    PlantedBug(
        "scheduler.py",
        "is not RequestStatus.FORKING:\n            self.waiting",
        "is RequestStatus.WAITING:\n            self.waiting",
        "an aborted preempted request stays queued",
    ),
    PlantedBug("choices.py", "if sibling.status is RequestStatus.FORKING", "if True", "an aborted sibling comes back"),
    PlantedBug(
        "scheduler.py",
        "forget(request.request_id)\n        self._queue_siblings(request)",
        "forget(request.request_id)",
        "siblings wait for ever for an aborted leader",
    ),
    PlantedBug(
        "scheduler.py", "self.kv.publish(request)\n        num_left", "num_left", "decoded blocks are never cached"
    ),
    PlantedBug("scheduler.py", "self.kv.free(request)", "pass", "blocks are not released"),
    PlantedBug("scheduler.py", "source.priority if self.has_priorities else 0", "0", "priorities are ignored"),
    PlantedBug("scheduler.py", "if request.draft_token_ids:", "if False:", "a guess preempts somebody"),
    PlantedBug("deadlines.py", "(is_queued or not is_of_queue)", "is_queued", "who has begun outlives every deadline"),
    PlantedBug(
        "deadlines.py", "self._is_queued_by_id[request_id] = False", "pass", "the queue's deadline ends runners"
    ),
    PlantedBug("scheduler.py", "self._deadlines.add(source)", "pass", "deadlines are never met"),
    PlantedBug("deadlines.py", "<= now_s", "<= now_s + 1", "requests expire before their time"),
    PlantedBug("fair_queue.py", "self._num_waiting -= 1", "pass", "a fair queue is never empty"),
    PlantedBug(
        "fair_queue.py", "del self._queue_by_tenant[request.tenant]", "pass", "a tenant with nothing to do waits"
    ),
]

ROW_MAP = [
    PlantedBug("row_map.py", "self._freed_rows.append(request.row)", "pass", "the worker is not told of a freed row"),
    PlantedBug("row_map.py", "self._free_rows.append(request.row)", "pass", "rows leak"),
    PlantedBug("row_map.py", "self._freed_rows.clear()", "pass", "a row is freed again and again"),
]

ADMISSION = [
    PlantedBug(
        "admission.py",
        "self.max_total_tokens(num_prompt_tokens, max_tokens) - 1",
        "self.max_total_tokens(num_prompt_tokens, max_tokens)",
        "what just fits is refused",
    ),
    PlantedBug(
        "admission.py",
        "if needed > self.num_blocks:",
        "if needed > self.num_blocks + 1:",
        "what can never fit is let in",
    ),
]

PLANTED_BUGS = [
    *BLOCK_POOL,
    *PREFIX_INDEX,
    *BLOCK_TABLE,
    *KV_CACHE_MANAGER,
    *WAITING_QUEUE,
    *REQUEST,
    *SCHEDULER,
    *ROW_MAP,
    *ADMISSION,
]
