"""How far two sequences of tokens say the same."""

from __future__ import annotations

from collections.abc import Sequence


def equal_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many of the first tokens are the same."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
