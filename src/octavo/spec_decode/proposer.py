"""The seam between the worker and whatever guesses tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from octavo.backends.ops import Int32Array
from octavo.core.messages import SchedulerOutput


class SequenceTable(Protocol):
    """What a proposer reads of the worker's table."""

    token_ids: Int32Array  # [rows, max_model_len]
    num_tokens: Int32Array  # [rows] how many of them are known


class Proposer(Protocol):
    """Guesses the tokens that follow. A guess can cost time and nothing else: answers do not depend on it."""

    is_free: bool  # whether a guess takes no time worth speaking of

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Learn of a step's rows and blocks, after the table has and before the step runs."""
        ...

    def propose(self, num_drafts_by_row: Mapping[int, int]) -> dict[int, list[int]]:
        """At most so many tokens to follow the known ones of each row; called at the end of each step, for some rows.

        Rows that it has no guess for may be left out.
        """
        ...

    def pass_s(self, num_tokens: int) -> float:
        """Seconds of computing `num_tokens` tokens for guesses at once."""
        ...

    def num_missing(self, row: int) -> int:
        """How many tokens have to be computed before the first guess for the row, beside its last one."""
        ...
