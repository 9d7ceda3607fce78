"""JsonScanner: where a JSON value ends, in text that comes in pieces."""

from __future__ import annotations

_LETTERS = frozenset(" \t\r\n,:.+-0123456789abcdefghijklmnopqrstuvwxyzE")  # outside of strings, besides brackets


class JsonScanner:
    """Counts brackets. It does not check grammar, but notices letters that no JSON has."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth  # brackets that are open
        self.is_broken = False  # a letter came that cannot be there
        self._is_in_string = False
        self._is_escaped = False

    def scan(self, text: str, depth: int) -> tuple[int, bool]:
        """Read on, up to the bracket that leaves `depth` open or to a letter that breaks it.

        Returns how many characters belong to the value, and whether that is where it ends.
        """
        for place, letter in enumerate(text):
            if self._is_in_string:
                self._read_in_string(letter)
            elif letter == '"':
                self._is_in_string = True
            elif letter in "{[":
                self.depth += 1
            elif letter in "}]":
                self.depth -= 1
                if self.depth == depth:
                    return place + 1, True
            elif letter not in _LETTERS:
                self.is_broken = True
                return place, True
        return len(text), False

    def _read_in_string(self, letter: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == "\\":
            self._is_escaped = True
        elif letter == '"':
            self._is_in_string = False
