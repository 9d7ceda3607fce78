"""BadWords: which tokens would complete a sequence that the output must not hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class BadWords:
    """Follows the output of one sequence. What the prompt ends with begins no bad word."""

    def __init__(self, sequences: Sequence[tuple[int, ...]], output_ids: Iterable[int]) -> None:
        self._always = [sequence[0] for sequence in sequences if len(sequence) == 1]
        self._longer_by_next_to_last: dict[int, list[tuple[int, ...]]] = {}
        for sequence in sequences:
            if len(sequence) > 1:
                self._longer_by_next_to_last.setdefault(sequence[-2], []).append(sequence)
        longest = max(map(len, sequences), default=1)
        self._tail = deque(output_ids, maxlen=longest - 1)  # all that a prefix can be compared with

    def append(self, token_id: int) -> None:
        """Add a token to the output."""
        self._tail.append(token_id)

    def banned_ids(self, draft_ids: Sequence[int]) -> list[int]:
        """The ids that may not come next, after these drafts."""
        tail = (*self._tail, *draft_ids)
        candidates = self._longer_by_next_to_last.get(tail[-1], []) if tail else []
        return self._always + [sequence[-1] for sequence in candidates if tail[1 - len(sequence) :] == sequence[:-1]]
