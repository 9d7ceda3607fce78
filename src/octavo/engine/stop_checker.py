"""StopChecker: finds the stop strings of one choice in its text as it comes."""

from __future__ import annotations

from collections.abc import Sequence


class StopChecker:
    """Passes text on until a stop string is complete. It knows text only, no tokens.

    The string that ends first wins, of several that end together the longest: where the text is cut does not depend
    on how it was cut into pieces. Text that may be the beginning of a stop string is held back until that is decided.
    """

    def __init__(self, stop: Sequence[str], *, include_stop_str_in_output: bool = False) -> None:
        self._stop = tuple(stop)
        self._includes_stop = include_stop_str_in_output
        self._held = ""

    def add(self, delta: str, *, can_stop: bool = True) -> tuple[str, str | None]:
        """Return the text to pass on now, and the stop string that ended it, if one did.

        A stop string does not count if it ends in text that came with `can_stop=False`: that of a request's first
        `min_tokens` tokens.
        """
        text = self._held + delta
        found = self._first_stop(text) if can_stop else None
        if found is not None:
            start, end = found
            self._held = ""
            return text[: end if self._includes_stop else start], text[start:end]
        self._held = text[self._start_of_possible_stop(text) :]
        return text[: len(text) - len(self._held)], None

    def finish(self) -> str:
        """The text still held back, when no more will come."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first stop string that ends in the new part of `text`."""
        spans = []
        for stop in self._stop:
            start = text.find(stop, max(0, len(self._held) - len(stop) + 1))
            if start >= 0:
                spans.append((start, start + len(stop)))
        return min(spans, key=lambda span: (span[1], span[0]), default=None)

    def _start_of_possible_stop(self, text: str) -> int:
        """Where the longest ending of `text` begins that is the beginning of a stop string; len(text) if none is."""
        first = len(text)
        for stop in self._stop:
            start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
            while 0 <= start < first:
                if stop.startswith(text[start:]):
                    first = start
                else:
                    start = text.find(stop[0], start + 1)
        return first
