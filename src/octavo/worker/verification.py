"""Verification: of the tokens chosen after known ones and after each draft, those that stand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from octavo.core.equal_prefix import equal_prefix_length
from octavo.core.messages import ScheduledRow


def num_verified(sampled: Sequence[ScheduledRow], token_ids: Sequence[int]) -> list[int]:
    """How many tokens each row gets: its drafts as far as they are what was chosen, and the one chosen after them.

    `token_ids` has 1 + the number of drafts for each row, in order. What was chosen behind a wrong draft is about
    another text. A place at which nothing can be chosen (a negative id) ends the row's tokens before it: alone in
    the next step, it comes out as the error that it is.
    """
    counts = []
    chosen_ids = iter(token_ids)
    for entry in sampled:
        chosen = list(islice(chosen_ids, 1 + len(entry.draft_token_ids)))
        num_right = equal_prefix_length(entry.draft_token_ids, chosen)
        counts.append(num_right + (chosen[num_right] >= 0))
    return counts
