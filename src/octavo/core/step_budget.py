"""StepBudget: how many tokens a step may compute, so that streams that run do not stall behind a long prompt."""

from __future__ import annotations

from octavo.core.line_fit import LineFit

FORGETTING = 0.98  # weight of the past at each step: the fit looks back over some fifty
MIN_CHUNK = 16  # prompt tokens that a step may compute in any case, so that prompts come to their end


class StepBudget:
    """As many as the scheduler allows, or fewer, so that a step takes `target_step_s` while streams run.

    The time of a step is taken for a line over its tokens, fitted to the steps that were measured. Which chunks a
    prompt is cut into makes no difference to any answer, so this may use a clock.
    """

    def __init__(self, target_step_s: float) -> None:
        self._target_step_s = target_step_s
        self._line = LineFit(FORGETTING)

    def observe(self, num_tokens: int, step_s: float) -> None:
        """Learn from a step."""
        self._line.add(num_tokens, step_s)

    def num_tokens(self, num_streams: int) -> int | None:
        """The budget of a step in which so many streams wait for their next token; None: no limit."""
        line = self._line
        if num_streams == 0 or line.mean_y <= 0:
            return None
        if line.slope > 0:
            affordable = line.mean_x + (self._target_step_s - line.mean_y) / line.slope
        else:  # all steps were alike, or noise: as if a step without tokens took no time
            affordable = line.mean_x * self._target_step_s / line.mean_y
        return max(int(affordable), num_streams + MIN_CHUNK)
