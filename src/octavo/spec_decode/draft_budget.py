"""DraftBudget: how many drafts each row may have, so that they bring more tokens than the time they take would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.core.line_fit import LineFit

STEP_FORGETTING = 0.98  # weight of the past at each step: costs are those of the last fifty or so
ROW_FORGETTING = 0.9  # at each guess that was right or wrong: a text changes its ways within some ten tokens
ENGINE_FORGETTING = 0.998
FIRST_TOKEN_SHARE = 0.5  # of what a token takes of a step: what one more adds, while all steps were alike
FIRST_RATE, FIRST_WEIGHT = 0.7, 4.0  # what is expected of guesses before any was seen, and how many sights it is worth
MARGIN = 1.25  # drafts must bring so many times what they cost: neither is known exactly
OUTLIER = 3.0  # a step that takes more times what was expected was held up by something else
EXPLORING_SHARE = 0.01  # of the time may go into seeing what drafts would bring where they did not pay
PLAIN_STEP_INTERVAL = 64  # where drafts pay, every so many steps one goes without, to see what that costs


class AcceptanceRate:
    """The share of guesses that are right: of those seen lately, and of what was expected before."""

    def __init__(self, forgetting: float, weight: float) -> None:
        self._forgetting = forgetting
        self._weight = weight  # of the expectation, in guesses
        self._num_right = 0.0
        self._num_seen = 0.0

    def observe(self, num_right: int, num_wrong: int) -> None:
        """Learn from guesses."""
        fade = self._forgetting ** (num_right + num_wrong)
        self._num_right = self._num_right * fade + num_right
        self._num_seen = self._num_seen * fade + num_right + num_wrong

    def rate(self, expected: float) -> float:
        """The share, where `expected` is that of others."""
        return (expected * self._weight + self._num_right) / (self._weight + self._num_seen)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a row could do with drafts."""

    row: int
    max_drafts: int  # that it has room for
    num_missing: int  # tokens that the proposer must compute first
    num_to_come: int  # tokens that it is expected to go on for


class DraftBudget:
    """Weighs tokens against seconds, both measured as the engine runs.

    A step over n tokens takes what a line fitted to the last steps says. The i-th draft of a row is right with the
    i-th power of the row's rate, since it counts only if all before it are right. It is worth its time if the tokens
    that it brings a second, right ones at the price of one more token in the step and of its guess, are more than the
    batch makes without it. Measured times change nothing but the number of drafts, and that changes no answer.
    """

    def __init__(self, max_drafts: int, pass_s: Callable[[int], float]) -> None:
        """`pass_s`: see Proposer."""
        self.reason = ""  # why there are none, when there are none
        self._max_drafts = max_drafts
        self._pass_s = pass_s
        self._step = LineFit(STEP_FORGETTING)
        self._engine = AcceptanceRate(ENGINE_FORGETTING, FIRST_WEIGHT)
        self._rate_by_row: dict[int, AcceptanceRate] = {}
        self._saved_s = 0.0  # for exploring
        self._num_steps = 0

    def forget(self, row: int) -> None:
        """The row is another request's from now on."""
        self._rate_by_row.pop(row, None)

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """Learn what a step without prompts took."""
        expected_s = self._step.at(num_tokens)
        self._step.add(num_tokens, min(seconds, OUTLIER * expected_s) if expected_s > 0 else seconds)
        self._saved_s += EXPLORING_SHARE * seconds

    def observe_guess(self, row: int, num_right: int, is_wrong: bool) -> None:
        """Learn how far a row's guess was right, and whether it then was wrong."""
        self._engine.observe(num_right, is_wrong)
        self._rate_by_row.setdefault(row, AcceptanceRate(ROW_FORGETTING, FIRST_WEIGHT)).observe(num_right, is_wrong)

    def allot(self, outlooks: Sequence[Outlook]) -> dict[int, int]:
        """How many drafts each of these rows gets in the next step. Rows that get none are left out."""
        self._num_steps += 1
        if not outlooks:
            return {}
        self.reason = ""
        num_drafts_by_row = self._worthwhile(outlooks)
        if num_drafts_by_row:
            self._saved_s = 0.0
            return {} if self._num_steps % PLAIN_STEP_INTERVAL == 0 else num_drafts_by_row
        return self._exploration(outlooks)

    def _worthwhile(self, outlooks: Sequence[Outlook]) -> dict[int, int]:
        """Deepen the drafts of all rows one by one, as long as the next ones raise the tokens a second."""
        tokens = float(len(outlooks))
        seconds = plain_s = max(self._step.at(tokens), 0.0)
        rate_by_row = self._rates(outlooks)
        pass_s = max(self._pass_s(0), 0.0)
        guess_s = max(self._pass_s(1) - self._pass_s(0), 0.0)  # of one row more in a pass
        draft_s = self._token_s() + guess_s
        num_drafts_by_row: dict[int, int] = {}
        for depth in range(1, self._max_drafts + 1):
            gains = {
                outlook.row: rate_by_row[outlook.row] ** depth for outlook in outlooks if depth <= outlook.max_drafts
            }
            gains = {row: gain for row, gain in gains.items() if gain * seconds > MARGIN * draft_s * tokens}
            gain, cost_s = sum(gains.values()), pass_s + len(gains) * draft_s
            if gain * seconds <= MARGIN * cost_s * tokens:
                break
            tokens, seconds = tokens + gain, seconds + cost_s
            num_drafts_by_row |= dict.fromkeys(gains, depth)
        if not num_drafts_by_row and any(outlook.max_drafts for outlook in outlooks):
            self.reason = (
                f"a draft takes {1000 * (pass_s + draft_s):.1f} ms and {max(rate_by_row.values()):.0%} of them are "
                f"right at best; without, a token takes {1000 * seconds / tokens:.1f} ms"
            )
        saved_s = plain_s / len(outlooks) - seconds / tokens  # a token
        late = [outlook.row for outlook in outlooks if outlook.num_missing * guess_s > outlook.num_to_come * saved_s]
        return {row: num for row, num in num_drafts_by_row.items() if row not in late}

    def _exploration(self, outlooks: Sequence[Outlook]) -> dict[int, int]:
        """One draft of one row, when the time saved up for it is enough."""
        nearest = min(outlooks, key=lambda outlook: outlook.num_missing)
        cost_s = self._token_s() + self._pass_s(1 + nearest.num_missing)
        if nearest.max_drafts == 0 or self._saved_s < cost_s:
            return {}
        self._saved_s = 0.0
        return {nearest.row: 1}

    def _token_s(self) -> float:
        """What one token more adds to a step."""
        line = self._step
        return line.slope if line.slope > 0 else FIRST_TOKEN_SHARE * line.mean_y / max(1.0, line.mean_x)

    def _rates(self, outlooks: Sequence[Outlook]) -> dict[int, float]:
        # A text that copies says nothing about the next one: trust grows with what is seen.
        expected = min(FIRST_RATE, self._engine.rate(FIRST_RATE))
        return {
            outlook.row: self._rate_by_row[outlook.row].rate(expected) if outlook.row in self._rate_by_row else expected
            for outlook in outlooks
        }
