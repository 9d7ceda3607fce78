"""The schemas of POST /v1/messages (Anthropic's API)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

# What a message cannot do, as NEUTRAL_VALUES has it for the other endpoints.
MESSAGES_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {"container": (), "mcp_servers": ([],), "output_format": ()}


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text."""

    text: str = ""


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought. We sign nothing, and check no signature."""

    thinking: str = ""
    signature: str = ""


class RedactedThinkingBlock(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    """Thoughts that another server hid: they are left out."""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call that the model asks for."""

    id: str
    name: str
    input: dict[str, Any] = {}


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    """What came of it."""

    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None


InputBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock
OutputBlock = TextBlock | ThinkingBlock | ToolUseBlock


class InputMessage(msgspec.Struct, frozen=True):
    """One turn of the conversation so far. If the last is the assistant's, the answer goes on where it ends."""

    role: Literal["user", "assistant", "system"]
    content: str | list[InputBlock]


class ToolChoiceParam(msgspec.Struct, frozen=True):
    """Whether tools are called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """Whether to think first, where the model's template can choose."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]


class JsonFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """JSON that follows a schema."""

    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """What the text must be."""

    format: JsonFormat | None = None
    effort: str | None = None  # accepted, as clients send it


class CountTokensRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a message is made of."""

    messages: list[InputMessage]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: ToolChoiceParam = ToolChoiceParam("auto")
    thinking: Thinking = Thinking("disabled")


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    """What the client sends."""

    max_tokens: Annotated[int, Meta(ge=1)]
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] = []
    output_config: OutputConfig = OutputConfig()
    stream: bool = False


class MessageUsage(msgspec.Struct, frozen=True):
    """Tokens that a message took."""

    input_tokens: int  # those not taken from the prefix cache
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class Message(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """The answer, as far as it has got."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[OutputBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TokenCount(msgspec.Struct, frozen=True):
    """How long the prompt of a message is."""

    input_tokens: int


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; its type says which of the other fields it has."""

    type: str
    message: Message | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: OutputBlock | UnsetType = UNSET
    delta: dict[str, Any] | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
