"""The schemas of POST /v1/responses: the request, the response that it becomes, and the events that tell of that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from octavo.server.openai.chat_protocol import TokenLogprob

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


# What a response cannot do, as NEUTRAL_VALUES has it for the other endpoints.
RESPONSES_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "conversation": (),
    "prompt": (),
    "context_management": ([],),
    "stop": ([],),
    "n": (1,),
}


class TextFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the text must be: anything, a JSON object, or what the schema says, `strict` or not."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(msgspec.Struct, frozen=True):
    """What the client wants of the text."""

    format: TextFormat | None = None  # None: any text
    verbosity: str | None = None  # accepted, as clients send it


class ReasoningConfig(msgspec.Struct, frozen=True):
    """How much to think: an effort of "none" turns it off where the model's template can."""

    effort: str | None = None
    summary: str | None = None  # accepted, as clients send it


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the client sends."""

    input: str | list[dict[str, Any]]  # messages, calls, their outputs, reasoning: see responses_input
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] = []
    text: TextConfig = TextConfig()
    reasoning: ReasoningConfig = ReasoningConfig()
    tools: list[dict[str, Any]] = []
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"  # a dict names functions
    parallel_tool_calls: bool = True
    truncation: Literal["auto", "disabled"] = "disabled"  # with either, what is too long is refused
    metadata: dict[str, str] = {}
    store: bool = True
    stream: bool = False
    background: bool = False
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    cache_salt: Annotated[str, Meta(max_length=128)] = ""
    user: str | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """Text of a message."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str = ""


class OutputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """An answer in text."""

    id: str
    status: Status = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = []


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """The thoughts before an answer."""

    id: str
    status: Status = "in_progress"
    summary: list[Any] = []
    content: list[ReasoningText] = []


class FunctionCall(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """A call that the model asks for."""

    id: str
    call_id: str
    name: str
    arguments: str = ""  # JSON
    status: Status = "in_progress"


OutputItem = OutputMessage | ReasoningItem | FunctionCall


class InputTokensDetails(msgspec.Struct, frozen=True):
    """Where input tokens came from."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """What output tokens were for."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    """Tokens that a response took."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseError(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: Literal["server_error"]
    message: str


class Response(msgspec.Struct, kw_only=True, tag_field="object", tag="response"):
    """The response, as far as it has got; most of it repeats the request."""

    id: str
    created_at: int  # seconds since the epoch
    completed_at: int | None = None
    status: Status = "in_progress"
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | UnsetType = UNSET  # when it has ended
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int | None
    temperature: float
    top_p: float
    text: dict[str, Any]
    reasoning: ReasoningConfig
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    truncation: str
    metadata: dict[str, str]
    store: bool
    background: bool


class ResponseDeleted(msgspec.Struct, frozen=True, tag_field="object", tag="response"):
    """A response is no longer stored."""

    id: str
    deleted: bool = True


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; its type says which of the other fields it has."""

    type: str
    sequence_number: int  # from 0
    response: Response | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    part: OutputText | ReasoningText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
