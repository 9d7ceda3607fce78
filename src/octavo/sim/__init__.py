"""The simulator: the real scheduler and loop over a model that costs nothing and a clock that is only counted."""
