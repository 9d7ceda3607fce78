"""PromptLookup: what followed the last tokens of a text when they stood in it before (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from octavo.core.messages import SchedulerOutput
from octavo.spec_decode.proposer import SequenceTable


class NgramIndex:
    """Where each n-gram of a text was last followed by something. O(1) a token: n has bounds."""

    def __init__(self, *, min_length: int, max_length: int) -> None:
        self._min_length = min_length
        self._max_length = max_length
        self._token_ids: list[int] = []
        self._next_by_ngram: dict[tuple[int, ...], int] = {}  # where the text goes on behind its last occurrence
        self._source: int | None = None  # where the text goes on that is being copied

    def __len__(self) -> int:
        return len(self._token_ids)

    def extend(self, token_ids: Iterable[int]) -> None:
        """Add tokens to the text."""
        text, source = self._token_ids, self._source
        for token_id in token_ids:
            for length in range(self._min_length, min(self._max_length, len(text)) + 1):
                self._next_by_ngram[tuple(text[-length:])] = len(text)
            if source is not None:
                source = source + 1 if text[source] == token_id else None
            text.append(token_id)
        self._source = source

    def continuation(self, num_tokens: int) -> list[int]:
        """The tokens that may follow: so many, or none.

        A copy that has been right so far goes on, however many other places begin alike. Else what counts is the
        longest n-gram that the text ends with and has held before, and of its places the last.
        """
        if self._source is None:
            self._source = self._find()
        if self._source is None:
            return []
        copied: list[int] = []
        for place in range(self._source, self._source + num_tokens):
            is_in_text = place < len(self._token_ids)
            copied.append(self._token_ids[place] if is_in_text else copied[place - len(self._token_ids)])
        return copied

    def _find(self) -> int | None:
        text = self._token_ids
        for length in range(min(self._max_length, len(text)), self._min_length - 1, -1):
            place = self._next_by_ngram.get(tuple(text[-length:]))
            if place is not None:
                return place
        return None


class PromptLookup:
    """Guesses from each request's own tokens: what an edit, a summary or an answer with quotations repeats."""

    is_free = True

    def __init__(self, table: SequenceTable, *, min_length: int, max_length: int) -> None:
        self._table = table
        self._min_length = min_length
        self._max_length = max_length
        self._index_by_row: dict[int, NgramIndex] = {}

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Forget the texts of freed rows."""
        for row in scheduled.freed_rows:
            self._index_by_row.pop(row, None)

    def propose(self, num_drafts_by_row: Mapping[int, int]) -> dict[int, list[int]]:
        """Look up each row's last tokens."""
        return {row: self._index(row).continuation(num) for row, num in num_drafts_by_row.items()}

    def pass_s(self, num_tokens: int) -> float:
        """Nothing is computed."""
        return 0.0

    def num_missing(self, row: int) -> int:
        """Nothing is computed."""
        return 0

    def _index(self, row: int) -> NgramIndex:
        """The row's text, up to its last token."""
        index = self._index_by_row.get(row)
        if index is None:
            index = NgramIndex(min_length=self._min_length, max_length=self._max_length)
            self._index_by_row[row] = index
        index.extend(self._table.token_ids[row, len(index) : self._table.num_tokens[row]].tolist())
        return index
