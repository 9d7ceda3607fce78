"""Inspector: stands between the loop and the ledger model, sees every step from both sides, and counts what happens."""

from __future__ import annotations

from octavo.core.block import Block
from octavo.core.executor import FinishedStep
from octavo.core.messages import SchedulerOutput
from octavo.core.request import Request, RequestStatus
from octavo.core.scheduler import MAX_PREEMPTIONS, Scheduler
from octavo.sim import invariants
from octavo.sim.ledger_model import LedgerModel
from octavo.sim.solo import ROOT_DIGEST, extend_digest


class CachedContent:
    """Compares what the prefix index says of each cached block with what the ledger has in its slots."""

    def __init__(self) -> None:
        self._digests_by_node: dict[int, list[int]] = {}
        self._depth_by_node: dict[int, int] = {}

    def check(self, block: Block, slots: list[int]) -> None:
        """Raise InvariantError unless the slots hold the block's tokens after its parent's."""
        expected = self._digests_by_node.get(block.node_id)
        if expected is None:
            expected = self._enter(block)
        invariants.require(slots == expected, "block", block.block_id, "is cached as", block.token_ids, "and is not")

    def _enter(self, block: Block) -> list[int]:
        parent = block.parent
        if isinstance(parent, str):
            digest, depth = ROOT_DIGEST, 0
        else:
            digest, depth = self._digests_by_node[parent][-1], self._depth_by_node[parent]
        digests = []
        for position, token_id in enumerate(block.token_ids, depth):
            digest = extend_digest(digest, token_id, position)
            digests.append(digest)
        self._digests_by_node[block.node_id] = digests
        self._depth_by_node[block.node_id] = depth + len(digests)
        return digests


class Inspector:
    """An executor around the ledger model that checks the live scheduler at every step, and counts situations."""

    def __init__(self, scheduler: Scheduler, ledger: LedgerModel, *, max_drafts: int, has_collisions: bool) -> None:
        self.last_scheduled = SchedulerOutput(0, 0, ())
        self.coverage = ledger.coverage
        self.admitted_ids: set[str] = set()  # of requests that have had a row
        self._scheduler = scheduler
        self._ledger = ledger
        self._max_drafts = max_drafts
        self._has_collisions = has_collisions
        self._cached_content = CachedContent()
        self._was_running: list[tuple[Request, bool]] = []  # when the last step ended, and whether it had drafts then

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        """Check the plan, execute it, compare the worker's tables with the scheduler's."""
        self.last_scheduled = scheduled
        invariants.check_plan(self._scheduler, scheduled, max_drafts=self._max_drafts)
        self._check_preempted()
        self._count(scheduled)
        handle = self._ledger.execute(scheduled)
        rows = {entry.row for entry in scheduled.scheduled}
        for request in self._scheduler.running:
            if request.row in rows:
                known = self._ledger.rows[request.row].block_ids
                table = [block.block_id for block in request.block_table.blocks]
                invariants.require(known == table, "row", request.row, "has", table, "and the worker was told", known)
        return handle

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def check_settled(self) -> None:
        """Check the scheduler between two steps."""
        scheduler = self._scheduler
        invariants.check_pool(scheduler)
        invariants.check_requests(scheduler)
        invariants.check_index(scheduler.kv, has_collisions=self._has_collisions)
        invariants.check_published(scheduler.kv, scheduler.running, has_collisions=self._has_collisions)
        keyed = [block for block in scheduler.kv.pool.blocks if block.key is not None]
        for block in sorted(keyed, key=lambda block: block.node_id):  # parents before children
            self._cached_content.check(block, self._ledger.slots[block.block_id])
        self._was_running = [(request, bool(request.draft_token_ids)) for request in scheduler.running]
        self.coverage["pool at 100%"] += scheduler.kv.pool.num_free == 0

    def _check_preempted(self) -> None:
        lost = [(request, had_drafts) for request, had_drafts in self._was_running if _is_preempted(request)]
        invariants.check_preempted([request for request, _ in lost], self._scheduler.running)
        for request, had_drafts in lost:
            self.coverage["preempted once"] += 1
            self.coverage["preempted three times"] += request.num_preemptions == MAX_PREEMPTIONS
            self.coverage["preempted with drafts"] += had_drafts
            self.coverage["preempted mid-chunk"] += request.num_output_tokens == 0

    def _count(self, scheduled: SchedulerOutput) -> None:
        """Count how the step's new rows begin."""
        request_by_row = {request.row: request for request in self._scheduler.running}
        for new_row in scheduled.new_rows:
            request = request_by_row[new_row.row]
            self.admitted_ids.add(request.request_id)
            num_hit = request.num_computed_tokens
            is_partial = num_hit % self._ledger.block_size != 0
            is_fork = request.index > 0 and num_hit == request.num_tokens - 1 and request.num_preemptions == 0
            self.coverage["fork"] += is_fork
            self.coverage["fork of a half-filled block"] += is_fork and is_partial
            self.coverage["prefix hit"] += num_hit > 0 and not is_fork
            self.coverage["partial prefix hit"] += is_partial and not is_fork
            self.coverage["prefix hit after a preemption"] += num_hit > 0 and request.num_preemptions > 0
            self.coverage["prompt scored"] += new_row.has_prompt_logprobs
            self.coverage["prompt scored anew"] += new_row.has_prompt_logprobs and request.num_preemptions > 0
            self.coverage["whole prompt cached"] += num_hit == request.num_tokens - 1 > 0 and not is_fork
        self.coverage["block copied"] += len(scheduled.block_copies)
        self.coverage["rows freed and given away in one step"] += bool(
            set(scheduled.freed_rows) & {new_row.row for new_row in scheduled.new_rows}
        )


def _is_preempted(request: Request) -> bool:
    return request.status is RequestStatus.PREEMPTED
