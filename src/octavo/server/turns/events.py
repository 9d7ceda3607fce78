"""What happens in a turn, one event after the other, and what a choice is once all has happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.engine.outputs import Logprob


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Tokens of a choice, before the events of their text: all that were generated, each once."""

    index: int
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None  # as in CompletionOutput


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """What the model thinks before it answers. Never empty."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of the answer. Never empty."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call begins; a choice's calls are numbered from 0 and come one after the other."""

    index: int
    call_index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of the arguments of the call begun last: all of a call's are the JSON object that the model wrote.

    What a model writes under no constraint need not be valid JSON; what the length limit cuts off is not.
    """

    index: int
    call_index: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A choice has ended: its last event."""

    index: int
    finish_reason: str  # "stop", "length", "tool_calls" or "timeout"
    stop_reason: int | str | None  # the token id or the stop string that ended it; None: end of sequence, or length


TurnEvent = NewTokens | ReasoningDelta | TextDelta | ToolCallStart | ToolArgumentsDelta | TurnEnd


@dataclass(slots=True)
class ToolCall:
    """A call that the model asks for."""

    call_id: str
    name: str
    arguments: str = ""  # JSON


@dataclass(slots=True)
class TurnChoice:
    """One choice as a whole."""

    index: int
    reasoning: str = ""
    text: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str = ""
    stop_reason: int | str | None = None

    def add(self, event: TurnEvent) -> None:
        """Take in the choice's next event."""
        match event:
            case NewTokens(_, token_ids, logprobs):
                self.token_ids += token_ids
                if logprobs is not None:
                    self.logprobs = (self.logprobs or []) + logprobs
            case ReasoningDelta(_, text):
                self.reasoning += text
            case TextDelta(_, text):
                self.text += text
            case ToolCallStart(_, _, call_id, name):
                self.tool_calls.append(ToolCall(call_id, name))
            case ToolArgumentsDelta(_, _, text):
                self.tool_calls[-1].arguments += text
            case TurnEnd(_, finish_reason, stop_reason):
                self.finish_reason, self.stop_reason = finish_reason, stop_reason
