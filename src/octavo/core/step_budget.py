"""StepBudget: how many tokens a step may compute, so that streams that run do not stall behind a long prompt."""

from __future__ import annotations

FORGETTING = 0.98  # weight of the past at each step: the fit looks back over some fifty
MIN_CHUNK = 16  # prompt tokens that a step may compute in any case, so that prompts come to their end


class StepBudget:
    """As many as the scheduler allows, or fewer, so that a step takes `target_step_s` while streams run.

    The time of a step is taken for a line over its tokens, fitted to the steps that were measured (least squares, the
    older the lighter). Which chunks a prompt is cut into makes no difference to any answer, so this may use a clock.
    """

    def __init__(self, target_step_s: float) -> None:
        self._target_step_s = target_step_s
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_s = 0.0
        self._variance = 0.0  # of the tokens, times the weight
        self._covariance = 0.0  # with the seconds, times the weight

    def observe(self, num_tokens: int, step_s: float) -> None:
        """Learn from a step."""
        self._weight = self._weight * FORGETTING + 1
        delta_tokens, delta_s = num_tokens - self._mean_tokens, step_s - self._mean_s
        self._mean_tokens += delta_tokens / self._weight
        self._mean_s += delta_s / self._weight
        self._variance = self._variance * FORGETTING + delta_tokens * (num_tokens - self._mean_tokens)
        self._covariance = self._covariance * FORGETTING + delta_tokens * (step_s - self._mean_s)

    def num_tokens(self, num_streams: int) -> int | None:
        """The budget of a step in which so many streams wait for their next token; None: no limit."""
        if num_streams == 0 or self._mean_s <= 0:
            return None
        slope = self._covariance / self._variance if self._variance > 0 else 0.0
        if slope > 0:
            affordable = self._mean_tokens + (self._target_step_s - self._mean_s) / slope
        else:  # all steps were alike, or noise: as if a step without tokens took no time
            affordable = self._mean_tokens * self._target_step_s / self._mean_s
        return max(int(affordable), num_streams + MIN_CHUNK)
