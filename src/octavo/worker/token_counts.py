"""TokenCounts: which ids a sequence holds, and how often its output holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from octavo.backends.ops import Int32Array


class TokenCounts:
    """Counts the output of one sequence. Each id has one place, in the order in which the ids came."""

    def __init__(self, prompt_ids: Iterable[int], output_ids: Iterable[int], *, max_num_ids: int) -> None:
        self._place_by_id: dict[int, int] = {}
        self._ids: Int32Array = np.empty(max_num_ids, np.int32)
        self._counts: Int32Array = np.zeros(max_num_ids, np.int32)
        for token_id in dict.fromkeys(prompt_ids):
            self._place_of(token_id)
        for token_id in output_ids:
            self.append(token_id)

    def after(self, draft_ids: Sequence[int]) -> tuple[Int32Array, Int32Array]:
        """The distinct ids of prompt, output and these drafts, and how often output and drafts hold each.

        Views, which `append` changes, unless there are drafts.
        """
        num_ids = len(self._place_by_id)
        ids, counts = self._ids[:num_ids], self._counts[:num_ids]
        if not draft_ids:
            return ids, counts
        new_ids = [token_id for token_id in dict.fromkeys(draft_ids) if token_id not in self._place_by_id]
        place_by_new_id = {token_id: num_ids + place for place, token_id in enumerate(new_ids)}
        counts = np.concatenate([counts, np.zeros(len(new_ids), np.int32)])
        for token_id in draft_ids:
            place = self._place_by_id.get(token_id)
            counts[place_by_new_id[token_id] if place is None else place] += 1
        return np.concatenate([ids, np.array(new_ids, np.int32)]), counts

    def append(self, token_id: int) -> None:
        """Count one more token of the output."""
        self._counts[self._place_of(token_id)] += 1

    def _place_of(self, token_id: int) -> int:
        place = self._place_by_id.setdefault(token_id, len(self._place_by_id))
        self._ids[place] = token_id
        return place
