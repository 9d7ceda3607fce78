"""How long prompts and outputs are: distributions as a command line writes them."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

SHAPES = "512, uniform:64,512 or lognormal:256,0.8"


class Lengths(NamedTuple):
    """A distribution of lengths in tokens; its samples are at least 1."""

    shape: str  # "fixed", "uniform" or "lognormal"
    first: float  # the length; the shortest; the median
    second: float = 0.0  # unused; the longest; the standard deviation of the logarithm

    @classmethod
    def parse(cls, text: str) -> Lengths:
        """What `text` writes. Raises ValueError for anything that is not like SHAPES."""
        shape, _, numbers = text.rpartition(":")
        try:
            values = [float(number) for number in numbers.split(",")]
        except ValueError:
            values = []
        if not all(0 < value < math.inf for value in values):
            values = []
        match shape or "fixed", values:
            case "fixed", [length]:
                return cls("fixed", length)
            case "uniform", [low, high] if low <= high:
                return cls("uniform", low, high)
            case "lognormal", [median, deviation]:
                return cls("lognormal", median, deviation)
        raise ValueError(f"the lengths are {text!r}; write them like {SHAPES}")

    def sample(self, rng: random.Random) -> int:
        """One length."""
        match self.shape:
            case "fixed":
                length = self.first
            case "uniform":
                length = rng.uniform(self.first, self.second)
            case _:
                length = self.first * math.exp(rng.gauss(0.0, self.second))
        return max(1, round(length))
