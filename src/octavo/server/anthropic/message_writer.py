"""MessageWriter: the events of a turn become those of an Anthropic message, and the message itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from octavo.server.anthropic.messages_protocol import (
    Message,
    MessageEvent,
    MessageUsage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from octavo.server.errors import AnthropicErrorEnvelope, ApiError
from octavo.server.turns.events import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStart, TurnEnd, TurnEvent
from octavo.server.turns.turn import Turn
from octavo.server.turns.writer import TurnWriter
from octavo.server.usage import Usage

STOP_REASONS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageWriter(TurnWriter):
    """Writes a turn into `message`, block after block, each of which ends before the next begins."""

    def __init__(self, message: Message, turn: Turn, request_id: str) -> None:
        super().__init__(turn)
        self.message = message
        self._request_id = request_id
        self._block: Any = None  # the one that is being written
        self._arguments = ""  # of a call

    def fail(self, error: ApiError) -> AnthropicErrorEnvelope:
        """The message broke off."""
        return error.anthropic_envelope(self._request_id)

    def _begin(self) -> Iterator[MessageEvent]:
        yield MessageEvent(type="message_start", message=self.message)

    def _end(self) -> Iterator[MessageEvent]:
        self.message.usage = message_usage(self._turn.usage)
        stop = {"stop_reason": self.message.stop_reason, "stop_sequence": self.message.stop_sequence}
        yield MessageEvent(type="message_delta", delta=stop, usage=self.message.usage)
        yield MessageEvent(type="message_stop")

    def _take(self, happening: TurnEvent) -> Iterator[MessageEvent]:
        match happening:
            case ReasoningDelta(_, text):
                if not isinstance(self._block, ThinkingBlock):
                    yield from self._begin_block(ThinkingBlock())
                self._block.thinking += text
                yield self._delta(type="thinking_delta", thinking=text)
            case TextDelta(_, text):
                if not isinstance(self._block, TextBlock):
                    yield from self._begin_block(TextBlock())
                self._block.text += text
                yield self._delta(type="text_delta", text=text)
            case ToolCallStart(_, _, call_id, name):
                yield from self._begin_block(ToolUseBlock(call_id, name))
            case ToolArgumentsDelta(_, _, text):
                self._arguments += text
                yield self._delta(type="input_json_delta", partial_json=text)
            case TurnEnd(_, finish_reason, stop_reason):
                if not self.message.content:  # clients look for a block
                    yield from self._begin_block(TextBlock())
                yield from self._end_block()
                self.message.stop_reason = STOP_REASONS[finish_reason]
                if isinstance(stop_reason, str):
                    self.message.stop_reason, self.message.stop_sequence = "stop_sequence", stop_reason

    def _begin_block(self, block: TextBlock | ThinkingBlock | ToolUseBlock) -> Iterator[MessageEvent]:
        yield from self._end_block()
        self._block, self._arguments = block, ""
        self.message.content.append(block)
        yield MessageEvent(type="content_block_start", index=self._index, content_block=block)

    def _end_block(self) -> Iterator[MessageEvent]:
        if self._block is None:
            return
        if isinstance(self._block, ToolUseBlock):
            self._block.input = _object(self._arguments)
        yield MessageEvent(type="content_block_stop", index=self._index)
        self._block = None

    @property
    def _index(self) -> int:
        return len(self.message.content) - 1

    def _delta(self, **delta: str) -> MessageEvent:
        return MessageEvent(type="content_block_delta", index=self._index, delta=delta)


def message_usage(usage: Usage) -> MessageUsage:
    """Anthropic counts what came out of the cache apart."""
    num_cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(usage.prompt_tokens - num_cached, usage.completion_tokens, num_cached)


def _object(arguments: str) -> dict[str, Any]:
    """The arguments as an object; what the length limit has cut off is none, and stop_reason says so."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
