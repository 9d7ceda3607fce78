"""TokenCounts: which ids a sequence holds, and how often its output holds them."""

from __future__ import annotations

from collections.abc import Iterable

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

    @property
    def ids(self) -> Int32Array:
        """The distinct ids of prompt and output. A view: `append` changes it."""
        return self._ids[: len(self._place_by_id)]

    @property
    def output_counts(self) -> Int32Array:
        """How often the output holds each of `ids`; 0: the prompt alone does. A view, too."""
        return self._counts[: len(self._place_by_id)]

    def append(self, token_id: int) -> None:
        """Count one more token of the output."""
        self._counts[self._place_of(token_id)] += 1

    def _place_of(self, token_id: int) -> int:
        place = self._place_by_id.setdefault(token_id, len(self._place_by_id))
        self._ids[place] = token_id
        return place
