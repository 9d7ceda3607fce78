"""StatsLog: now and then a line about what the engine does, while it does anything."""

from __future__ import annotations

import logging
import time

from octavo.core.messages import StepStats

INTERVAL_S = 10.0

logger = logging.getLogger("octavo.engine")


class StatsLog:
    """Sums steps up and logs the sum every INTERVAL_S at most."""

    def __init__(self) -> None:
        self._started_s = 0.0
        self._num_steps = 0
        self._num_tokens = 0
        self._num_output_tokens = 0
        self._before = StepStats()

    def take(self, stats: StepStats, num_output_tokens: int) -> None:
        """Learn of a step."""
        if self._num_steps == 0:
            self._started_s = time.monotonic()  # not when the last line was written: since then it may have been idle
        self._num_steps += 1
        self._num_tokens += stats.num_tokens
        self._num_output_tokens += num_output_tokens
        elapsed_s = time.monotonic() - self._started_s
        if elapsed_s < INTERVAL_S:
            return
        num_queried = stats.num_prefix_queries_total - self._before.num_prefix_queries_total
        num_hit = stats.num_prefix_hits_total - self._before.num_prefix_hits_total
        logger.info(
            "running %d, waiting %d; %.0f steps/s, %.0f tokens/s computed, %.0f generated; "
            "KV cache %.0f%% in use, prefix hits %.0f%%, preemptions %d",
            stats.num_running,
            stats.num_waiting,
            self._num_steps / elapsed_s,
            self._num_tokens / elapsed_s,
            self._num_output_tokens / elapsed_s,
            100 * (1 - stats.num_free_blocks / max(1, stats.num_blocks)),
            100 * num_hit / max(1, num_queried),
            stats.num_preemptions_total - self._before.num_preemptions_total,
        )
        if stats.num_drafts_total or stats.no_drafts_reason:
            self._log_drafts(stats)
        self._before = stats
        self._num_steps = self._num_tokens = self._num_output_tokens = 0

    def _log_drafts(self, stats: StepStats) -> None:
        before = self._before
        num_drafts = stats.num_draft_tokens_total - before.num_draft_tokens_total
        num_accepted = sum(stats.num_accepted_tokens_per_pos_total) - sum(before.num_accepted_tokens_per_pos_total)
        num_runs = stats.num_drafts_total - before.num_drafts_total
        logger.info(
            "drafts %d, accepted %d (%.0f%%), %.2f tokens a run%s",
            num_drafts,
            num_accepted,
            100 * num_accepted / max(1, num_drafts),
            1 + num_accepted / max(1, num_runs),
            f"; none now: {stats.no_drafts_reason}" if stats.no_drafts_reason else "",
        )
