"""POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.engine.request_terms import DEFAULT_TERMS, RequestTerms
from octavo.server.anthropic.message_writer import MessageWriter, message_usage
from octavo.server.anthropic.messages_protocol import (
    CountTokensRequest,
    InputMessage,
    Message,
    MessagesRequest,
    TextBlock,
    ThinkingBlock,
    TokenCount,
    ToolResultBlock,
    ToolUseBlock,
)
from octavo.server.errors import invalid
from octavo.server.generation_fields import GenerationFields
from octavo.server.json_response import json_response
from octavo.server.openai.chat_messages import template_messages
from octavo.server.openai.chat_protocol import ChatMessage
from octavo.server.parameters import sampling_params
from octavo.server.request_body import convert
from octavo.server.serving import serving_of
from octavo.server.sse import EventStream
from octavo.server.terms import terms_of
from octavo.server.turns.tools import Tool, read_tool_choice
from octavo.server.turns.turn import TurnRequest, open_turn, render_turn


async def create_message(request: Request, body: MessagesRequest) -> Response | EventStream:
    """Continue a conversation by one turn, in the form of Anthropic's API."""
    serving = serving_of(request)
    model = serving.model_name(body.model)
    fields = GenerationFields(
        temperature=body.temperature, top_p=body.top_p, top_k=body.top_k, stop=body.stop_sequences, stream=body.stream
    )
    params = sampling_params(fields, serving.engine.ready, max_tokens=body.max_tokens, logprobs=None)
    if body.output_config.format is not None:
        params = replace(params, structured_outputs=StructuredOutputsParams(json=body.output_config.format.schema))
    turn = await open_turn(serving, _turn_request(body, params, terms_of(request)))
    message = Message(id=f"msg_{uuid4().hex}", model=model, content=[], usage=message_usage(turn.usage))
    writer = MessageWriter(message, turn, request.state.request_id)
    if body.stream:
        return EventStream(writer.events(), turn.close, name_of=lambda event: getattr(event, "type", "error"))
    await writer.write()
    return json_response(message)


async def count_tokens(request: Request, body: CountTokensRequest) -> Response:
    """How many tokens the prompt of a message has."""
    serving = serving_of(request)
    serving.model_name(body.model)
    prompt = await render_turn(serving, _turn_request(body, SamplingParams(), DEFAULT_TERMS))
    return json_response(TokenCount(len(await serving.engine.texts.token_ids(prompt))))


def _turn_request(body: CountTokensRequest, params: SamplingParams, terms: RequestTerms) -> TurnRequest:
    tools = _function_tools(body.tools)
    choice = body.tool_choice
    named: dict[str, Any] = {"type": "function", "name": choice.name}
    values: dict[str, Any] = {"auto": "auto", "any": "required", "tool": named, "none": "none"}
    is_begun = bool(body.messages) and body.messages[-1].role == "assistant"
    return TurnRequest(
        messages=template_messages(msgspec.convert(_chat_messages(body), list[ChatMessage])),
        params=params,
        tools=tools,
        tool_choice=read_tool_choice(values[choice.type], tools, is_parallel=not choice.disable_parallel_tool_use),
        add_generation_prompt=not is_begun,
        continue_final_message=is_begun,
        template_variables={"enable_thinking": body.thinking.type != "disabled"},
        terms=terms,
    )


def _function_tools(tools: list[dict[str, Any]]) -> list[Tool]:
    """The client's own tools. Those with a type are Anthropic's, which clients can do without: they are left out."""
    functions = [
        {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool.get("input_schema")}
        for tool in tools
        if tool.get("type", "custom") == "custom"
    ]
    return convert([{"type": "function", "function": function} for function in functions], list[Tool], "tools")


def _chat_messages(body: CountTokensRequest) -> list[dict[str, Any]]:
    """The conversation in the chat form."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _text(body.system)})
    for i, message in enumerate(body.messages):
        messages += [_of_assistant(message, i)] if message.role == "assistant" else _of_others(message, i)
    return messages


def _of_others(message: InputMessage, i: int) -> list[dict[str, Any]]:
    """What is said to the model and, each in a message of its own, what came of calls."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    messages: list[dict[str, Any]] = []
    said: list[TextBlock] = []
    for j, block in enumerate(message.content):
        match block:
            case TextBlock():
                said.append(block)
            case ToolResultBlock(call_id, content):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": _text(content or "")})
            case _:
                raise _misplaced(i, j, message.role)
    return [*messages, {"role": message.role, "content": _text(said)}] if said or not messages else messages


def _of_assistant(message: InputMessage, i: int) -> dict[str, Any]:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    said: list[TextBlock] = []
    thoughts, calls = "", []
    for j, block in enumerate(message.content):
        match block:
            case TextBlock():
                said.append(block)
            case ThinkingBlock(thinking):
                thoughts += thinking
            case ToolUseBlock(call_id, name, arguments):
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call_id, "type": "function", "function": function})
            case ToolResultBlock():
                raise _misplaced(i, j, "assistant")
    filled = {"reasoning": thoughts, "tool_calls": calls}
    return {"role": "assistant", "content": _text(said)} | {name: value for name, value in filled.items() if value}


def _text(content: str | list[TextBlock]) -> str | list[dict[str, str]]:
    return content if isinstance(content, str) else [{"type": "text", "text": block.text} for block in content]


def _misplaced(i: int, j: int, role: str) -> Exception:
    path = f"messages[{i}].content[{j}]"
    return invalid(path, f"{path} has a type that a message of the {role} cannot have")
