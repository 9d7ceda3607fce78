"""ResponseWriter: the events of a turn become the events of a response, and the response itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any
from uuid import uuid4

from octavo.engine.outputs import Logprob
from octavo.server.errors import ApiError
from octavo.server.openai.chat_protocol import ChatLogprobs
from octavo.server.openai.responses_protocol import (
    FunctionCall,
    IncompleteDetails,
    InputTokensDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseError,
    ResponseEvent,
    ResponseUsage,
    Status,
)
from octavo.server.turns.events import (
    NewTokens,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
    TurnEnd,
    TurnEvent,
)
from octavo.server.turns.turn import Turn
from octavo.server.turns.writer import TurnWriter
from octavo.server.usage import Usage

ID_PREFIXES: dict[type, str] = {OutputMessage: "msg", ReasoningItem: "rs"}

LogprobsForm = Callable[[list[int], list[dict[int, Logprob]] | None], ChatLogprobs | None]


class ResponseWriter(TurnWriter):
    """Writes a turn into `response`, item after item, each of which ends before the next begins.

    `logprobs_form` writes the log-probabilities of tokens; `on_end` is called when the response is complete, before
    its last event.
    """

    def __init__(
        self, response: Response, turn: Turn, logprobs_form: LogprobsForm, on_end: Callable[[Response], None]
    ) -> None:
        super().__init__(turn)
        self.response = response
        self._logprobs_form = logprobs_form
        self._on_end = on_end
        self._num_events = 0
        self._item: Any = None  # the one that is being written, and its part
        self._part: Any = None
        self._logprobs: list[Any] = []  # of tokens whose text is still to come

    def fail(self, error: ApiError) -> ResponseEvent:
        """The response broke off."""
        self.response.status = "failed"
        self.response.error = ResponseError("server_error", error.message)
        return self._event("response.failed", response=self.response)

    def _begin(self) -> Iterator[ResponseEvent]:
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def _end(self) -> Iterator[ResponseEvent]:
        self.response.completed_at = int(time.time())
        self.response.usage = _usage(self._turn.usage)
        self._on_end(self.response)
        yield self._event(f"response.{self.response.status}", response=self.response)

    def _take(self, happening: TurnEvent) -> Iterator[ResponseEvent]:
        match happening:
            case NewTokens(_, token_ids, logprobs):
                written = self._logprobs_form(token_ids, logprobs)
                self._logprobs += written.content if written else []
            case ReasoningDelta(_, text):
                thoughts = yield from self._open(ReasoningItem, ReasoningText)
                thoughts.text += text
                self._logprobs = []
                yield self._event("response.reasoning_text.delta", **self._place, content_index=0, delta=text)
            case TextDelta(_, text):
                said = yield from self._open(OutputMessage, OutputText)
                said.text += text
                said.logprobs += self._logprobs
                logprobs, self._logprobs = self._logprobs, []
                fields = {"content_index": 0, "delta": text, "logprobs": logprobs}
                yield self._event("response.output_text.delta", **self._place, **fields)
            case ToolCallStart(_, _, call_id, name):
                yield from self._begin_item(FunctionCall(id=_new_id("fc"), call_id=call_id, name=name))
            case ToolArgumentsDelta(_, _, text):
                assert isinstance(self._item, FunctionCall)
                self._item.arguments += text
                yield self._event("response.function_call_arguments.delta", **self._place, delta=text)
            case TurnEnd(_, finish_reason, _):
                if not self.response.output:  # clients look for a message
                    yield from self._open(OutputMessage, OutputText)
                is_cut = finish_reason == "length"
                self.response.status = "incomplete" if is_cut else "completed"
                self.response.incomplete_details = IncompleteDetails("max_output_tokens") if is_cut else None
                yield from self._end_item(self.response.status)

    def _open(self, kind: type[Any], part_kind: type[Any]) -> Generator[ResponseEvent, None, Any]:
        """The part of the item under way, which is a new one unless it is of this kind."""
        if not isinstance(self._item, kind):
            yield from self._begin_item(kind(id=_new_id(ID_PREFIXES[kind])))
            self._part = part_kind()
            self._item.content.append(self._part)
            yield self._event("response.content_part.added", **self._place, content_index=0, part=self._part)
        return self._part

    def _begin_item(self, item: OutputItem) -> Iterator[ResponseEvent]:
        yield from self._end_item("completed")
        self._item = item
        self.response.output.append(item)
        yield self._event("response.output_item.added", output_index=self._place["output_index"], item=item)

    def _end_item(self, status: Status) -> Iterator[ResponseEvent]:
        if self._item is None:
            return
        item, place = self._item, self._place
        match item:
            case FunctionCall(name=name, arguments=arguments):
                yield self._event("response.function_call_arguments.done", **place, name=name, arguments=arguments)
            case ReasoningItem(content=[part]):
                yield self._event("response.reasoning_text.done", **place, content_index=0, text=part.text)
                yield self._event("response.content_part.done", **place, content_index=0, part=part)
            case OutputMessage(content=[part]):
                fields = {"content_index": 0, "text": part.text, "logprobs": part.logprobs}
                yield self._event("response.output_text.done", **place, **fields)
                yield self._event("response.content_part.done", **place, content_index=0, part=part)
        item.status = status
        yield self._event("response.output_item.done", output_index=place["output_index"], item=item)
        self._item = None

    @property
    def _place(self) -> dict[str, Any]:
        """Where the item under way is."""
        return {"output_index": len(self.response.output) - 1, "item_id": self.response.output[-1].id}

    def _event(self, kind: str, **fields: Any) -> ResponseEvent:
        self._num_events += 1
        return ResponseEvent(type=kind, sequence_number=self._num_events - 1, **fields)


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"


def _usage(usage: Usage) -> ResponseUsage:
    details = usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(details.reasoning_tokens if details else 0),
        total_tokens=usage.total_tokens,
    )
