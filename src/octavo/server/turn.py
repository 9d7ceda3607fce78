"""Turn: the next turn of a conversation under way, as events that every chat-like endpoint writes in its own form.

An endpoint makes a TurnRequest of its body, opens the turn, and either streams its events or collects its choices.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.engine.outputs import CompletionOutput
from octavo.server.counted_stream import CountedStream
from octavo.server.openai import Usage
from octavo.server.serving import Serving
from octavo.server.turn_events import NewTokens, TextDelta, TurnChoice, TurnEnd, TurnEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a turn is to be. `params.output_kind`: DELTA for a stream, FINAL_ONLY for whole choices."""

    messages: Sequence[Mapping[str, Any]]  # as templates read them: the arguments of a call are an object
    params: SamplingParams
    add_generation_prompt: bool = True
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    cache_salt: str = ""


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
