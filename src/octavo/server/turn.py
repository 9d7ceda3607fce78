"""Turn: the next turn of a conversation under way, as events that every chat-like endpoint writes in its own form.

An endpoint makes a TurnRequest of its body, opens the turn, and either streams its events or collects its choices.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.engine.outputs import CompletionOutput, Logprob
from octavo.server.counted_stream import CountedStream
from octavo.server.openai import Usage
from octavo.server.serving import Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a turn is to be. `params.output_kind`: DELTA for a stream, FINAL_ONLY for whole choices."""

    messages: Sequence[Mapping[str, Any]]  # as templates read them: the arguments of a call are an object
    params: SamplingParams
    add_generation_prompt: bool = True
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    cache_salt: str = ""


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
    """More of the arguments of the call begun last. All of a call's together are a JSON object, if it was completed."""

    index: int
    call_index: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A choice has ended: its last event."""

    index: int
    finish_reason: str  # "stop", "length" or "tool_calls"
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


class Turn:
    """One turn under way, in `num_choices` alternatives. Close it in any case; use `events` or `choices`, once."""

    def __init__(self, stream: CountedStream) -> None:
        self.num_choices = stream.num_choices
        self._stream = stream

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        return self._stream.usage

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """What happens, those of different choices in any order. Raises ApiError if a choice failed."""
        async with aclosing(self._stream.outputs()) as outputs:
            async for output in outputs:
                for choice in output.outputs:
                    for event in _events(choice):
                        yield event

    async def choices(self) -> list[TurnChoice]:
        """Every choice, once all have ended. Leaves nothing running if cancelled."""
        choices = [TurnChoice(index) for index in range(self.num_choices)]
        try:
            async for event in self.events():
                choices[event.index].add(event)
        finally:
            self.close()
        return choices

    def close(self) -> None:
        """End whatever still runs. Never waits, so that it works while a task is being cancelled."""
        self._stream.close()


async def open_turn(serving: Serving, request: TurnRequest) -> Turn:
    """Render the conversation and queue it. What cannot be served is refused here, before anything is answered.

    Raises ChatTemplateError, ParameterError, RequestRejected and EngineUnavailableError.
    """
    prompt = await serving.engine.render_chat(
        request.messages,
        add_generation_prompt=request.add_generation_prompt,
        variables=request.template_variables,
    )
    stream = await serving.engine.submit(
        [prompt], request.params, priority=request.priority, cache_salt=request.cache_salt
    )
    return Turn(CountedStream(stream, request.params.n))


def _events(choice: CompletionOutput) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    if choice.token_ids:
        events.append(NewTokens(choice.index, choice.token_ids, choice.logprobs))
    if choice.text:
        events.append(TextDelta(choice.index, choice.text))
    if choice.finish_reason is not None:
        events.append(TurnEnd(choice.index, choice.finish_reason, choice.stop_reason))
    return events
