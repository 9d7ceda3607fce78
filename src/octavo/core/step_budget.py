"""StepBudget: how many tokens a step may compute, so that streams that run do not stall behind a long prompt."""

from __future__ import annotations

from octavo.core.line_fit import LineFit

FORGETTING = 0.98  # weight of the past at each step: the fit looks back over some fifty
MIN_CHUNK = 16  # prompt tokens that a step may compute in any case, so that prompts come to their end
MAX_GROWTH = 2.0  # times the largest step of late: how far beyond it the line is believed
MAX_SLOWNESS = 3.0  # of one step: the line learns the rest
ALARM, RELIEF = 0.5, 0.1  # how fast a step that took longer than the line says counts, and one that took less


class StepBudget:
    """As many as the scheduler allows, or fewer, so that a step takes `target_step_s` while streams run.

    The time of a step is taken for a line over its tokens, fitted to the steps that were measured, times what the last
    ones took beyond it: tokens become dearer as a prompt goes on, and machines get other work. Which chunks a prompt is
    cut into makes no difference to any answer, so this may use a clock.
    """

    def __init__(self, target_step_s: float) -> None:
        self._target_step_s = target_step_s
        self._line = LineFit(FORGETTING)
        self._slowness = 1.0  # of the last steps, as a multiple of what the line says
        self._largest = 0.0  # tokens of a step, of late

    def observe(self, num_tokens: int, step_s: float) -> None:
        """Learn from a step."""
        expected_s = self._line.at(num_tokens)
        if expected_s > 0:
            excess = min(step_s / expected_s, MAX_SLOWNESS) - self._slowness
            self._slowness += (ALARM if excess > 0 else RELIEF) * excess
        self._largest = max(num_tokens, self._largest * FORGETTING)
        self._line.add(num_tokens, step_s)

    def num_tokens(self, num_streams: int) -> int | None:
        """The budget of a step in which so many streams wait for their next token; None: no limit."""
        line, target_s = self._line, self._target_step_s / self._slowness
        if num_streams == 0 or line.mean_y <= 0:
            return None
        if line.slope > 0:
            affordable = line.mean_x + (target_s - line.mean_y) / line.slope
        else:  # all steps were alike, or noise: as if a step without tokens took no time
            affordable = line.mean_x * target_s / line.mean_y
        return max(int(min(affordable, MAX_GROWTH * self._largest)), num_streams + MIN_CHUNK)
