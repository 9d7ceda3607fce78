"""Turn: the next turn of a conversation under way, as events that every chat-like endpoint writes in its own form.

An endpoint makes a TurnRequest of its body, opens the turn, and either streams its events or collects its choices.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import SamplingParams
from octavo.engine.input_processor import PromptDict
from octavo.engine.outputs import CompletionOutput, Logprob
from octavo.engine.request_terms import DEFAULT_TERMS, RequestTerms
from octavo.server.counted_stream import CountedStream
from octavo.server.serving import Serving
from octavo.server.turns.events import NewTokens, TurnChoice, TurnEnd, TurnEvent
from octavo.server.turns.parser import TurnParser
from octavo.server.turns.reasoning_tokens import ReasoningCounter
from octavo.server.turns.tools import Tool, ToolChoice
from octavo.server.usage import CompletionTokensDetails, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a turn is to be. `params.output_kind`: DELTA for a stream, FINAL_ONLY for whole choices."""

    messages: Sequence[Mapping[str, Any]]  # as templates read them: the arguments of a call are an object
    params: SamplingParams
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    add_generation_prompt: bool = True
    continue_final_message: bool = False  # instead of a new turn
    add_special_tokens: bool = False
    chat_template: str | None = None  # instead of the model's
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    terms: RequestTerms = DEFAULT_TERMS


class Turn:
    """One turn under way, in one or more choices. Close it in any case; use `events` or `choices`, once."""

    def __init__(self, stream: CountedStream, readers: Sequence[_ChoiceReader]) -> None:
        self.num_choices = stream.num_choices
        self._stream = stream
        self._readers = readers

    @property
    def prompt_token_ids(self) -> list[int]:
        """The conversation as the model reads it."""
        return self._stream.prompt_token_ids[0]

    @property
    def prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        """Of the prompt's tokens, if they were asked for, once a choice has begun."""
        return self._stream.prompt_logprobs

    @property
    def usage(self) -> Usage:
        """The tokens so far. Those of the reasoning are counted for models that reason."""
        counts = [reader.num_reasoning_tokens for reader in self._readers]
        known = [count for count in counts if count is not None]
        if not known:
            return self._stream.usage
        details = CompletionTokensDetails(reasoning_tokens=sum(known))
        return msgspec.structs.replace(self._stream.usage, completion_tokens_details=details)

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """What happens, those of different choices in any order. Raises ApiError if a choice failed."""
        async with aclosing(self._stream.outputs()) as outputs:
            async for output in outputs:
                for choice in output.outputs:
                    for event in self._readers[choice.index].read(choice):
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


class _ChoiceReader:
    """From the engine's outputs of one choice to its events."""

    def __init__(self, parser: TurnParser, counter: ReasoningCounter | None) -> None:
        self._parser = parser
        self._counter = counter

    @property
    def num_reasoning_tokens(self) -> int | None:
        """None: not known of this model."""
        return self._counter.num_tokens if self._counter else None

    def read(self, choice: CompletionOutput) -> list[TurnEvent]:
        """The events that the output brings."""
        events: list[TurnEvent] = []
        if choice.token_ids:
            events.append(NewTokens(choice.index, choice.token_ids, choice.logprobs))
            if self._counter:
                self._counter.add(choice.token_ids)
        events += self._parser.add(choice.text, is_last=choice.is_finished)
        if choice.finish_reason is not None:
            has_calls = choice.finish_reason == "stop" and self._parser.num_calls > 0
            reason = "tool_calls" if has_calls else choice.finish_reason
            events.append(TurnEnd(choice.index, reason, choice.stop_reason))
        return events


async def render_turn(serving: Serving, request: TurnRequest) -> PromptDict:
    """The prompt that the turn continues. Raises ChatTemplateError and EngineUnavailableError."""
    tools = request.tool_choice.select(request.tools) and request.tools
    messages, described = serving.turn_style.messages(request.messages, tools)
    return await serving.engine.texts.render_chat(
        messages,
        add_generation_prompt=request.add_generation_prompt,
        add_special_tokens=request.add_special_tokens,
        variables={
            **request.template_variables,
            "tools": described,
            "continue_final_message": request.continue_final_message,
            "chat_template": request.chat_template,
        },
    )


async def open_turn(serving: Serving, request: TurnRequest) -> Turn:
    """Render the conversation and queue it. What cannot be served is refused here, before anything is answered.

    Raises ApiError, ChatTemplateError, ParameterError, RequestRejected, EngineOverloadedError and
    EngineUnavailableError.
    """
    serving.engine.check_not_overloaded(request.params.n)
    style = serving.turn_style
    tools = request.tool_choice.select(request.tools)
    prompt = await render_turn(serving, request)
    is_reasoning = style.opens_reasoning(prompt["prompt"])
    params = style.params(request.params, tools, request.tool_choice, is_reasoning=is_reasoning)
    readers = [
        _ChoiceReader(
            style.parser(index, tools, request.tool_choice, is_reasoning=is_reasoning),
            style.reasoning_counter(is_reasoning=is_reasoning),
        )
        for index in range(params.n)
    ]
    try:
        stream = await serving.engine.submit([prompt], params, request.terms)
    except RequestRejected as error:
        is_of_tools = request.tool_choice.mode == "required" or request.params.structured_outputs is None
        if error.code == "invalid_grammar" and is_of_tools:
            raise RequestRejected(error.code, f"of these tools no grammar can be made: {error}", "tools") from error
        raise
    return Turn(CountedStream(stream, params.n), readers)
