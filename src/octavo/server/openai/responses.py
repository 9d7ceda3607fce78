"""POST /v1/responses, and what can be done with a response afterwards."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from octavo.core.sampling_params import SamplingParams
from octavo.server.api_keys import tenant_salt
from octavo.server.errors import as_api_error, invalid
from octavo.server.generation_fields import GenerationFields
from octavo.server.json_response import json_response
from octavo.server.openai.chat_messages import template_messages
from octavo.server.openai.chat_protocol import ChatMessage
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.openai.response_store import ResponseStore, StoredResponse
from octavo.server.openai.response_writer import ResponseWriter
from octavo.server.openai.responses_input import function_tools, input_messages
from octavo.server.openai.responses_protocol import Response, ResponseDeleted, ResponsesRequest, TextFormat
from octavo.server.parameters import sampling_params
from octavo.server.serving import Serving, serving_of
from octavo.server.sse import EventStream
from octavo.server.structured_fields import ResponseFormat
from octavo.server.terms import terms_of
from octavo.server.turns.tools import read_tool_choice
from octavo.server.turns.turn import TurnRequest, open_turn

LOGPROBS = "message.output_text.logprobs"  # what `include` calls them
PLAIN_TEXT = TextFormat("text")


async def create_response(request: Request, body: ResponsesRequest) -> HttpResponse | EventStream:
    """Continue a conversation by one turn, in the form of the Responses API."""
    if body.background and (body.stream or not body.store):
        raise invalid("background", "background needs store: true and no stream, for GET is how to follow it")
    serving, store, caller = serving_of(request), _store_of(request), tenant_salt(request, "")
    messages = [*_messages_before(store, caller, body.previous_response_id), *input_messages(body.input)]
    params = _sampling_params(serving, body)
    response = _response(serving, body, params)
    turn = await open_turn(serving, _turn_request(request, body, messages, params))

    def keep(response: Response) -> None:
        said = input_messages(msgspec.to_builtins(response.output))
        store.put(caller, StoredResponse(response, [*messages, *said]))

    num_top = params.logprobs or 0
    writer = ResponseWriter(
        response,
        turn,
        partial(chat_logprobs, num_top=num_top, tokenizer=serving.engine.tokenizer),
        keep if body.store else lambda _: None,
    )
    if body.stream:
        return EventStream(writer.events(), turn.close, name_of=lambda event: event.type)
    if body.background:
        store.put(caller, StoredResponse(response, messages, asyncio.create_task(_write_in_background(writer))))
        return json_response(response)
    await writer.write()
    return json_response(response)


async def get_response(request: Request) -> HttpResponse:
    """A stored response; one made in the background is there from its beginning."""
    if request.query_params.get("stream", "false") != "false":
        raise invalid("stream", "a stored response comes as a whole; leave stream out")
    return json_response(_stored(request).response)


async def delete_response(request: Request) -> HttpResponse:
    """Forget a stored response."""
    stored = _stored(request)
    if stored.task:
        stored.task.cancel()
    _store_of(request).drop(tenant_salt(request, ""), stored.response.id)
    return json_response(ResponseDeleted(stored.response.id))


async def cancel_response(request: Request) -> HttpResponse:
    """End a response that is made in the background; one that has ended stays as it is."""
    stored = _stored(request)
    if not stored.response.background:
        raise invalid("response_id", "only a response with background: true can be cancelled; close the connection")
    if stored.task:
        stored.task.cancel()
        await asyncio.wait([stored.task])
    return json_response(stored.response)


def _messages_before(store: ResponseStore, caller: str, response_id: str | None) -> list[dict[str, Any]]:
    """The conversation that the request goes on with."""
    if response_id is None:
        return []
    before = store.get(caller, response_id, "previous_response_id")
    if before.response.status == "in_progress":
        raise invalid("previous_response_id", f"the response {response_id!r} is still in progress; wait for its end")
    return before.messages


async def _write_in_background(writer: ResponseWriter) -> None:
    try:
        await writer.write()
    except asyncio.CancelledError:
        writer.response.status = "cancelled"
    except Exception as error:
        writer.fail(as_api_error(error))


def _turn_request(
    request: Request, body: ResponsesRequest, messages: list[dict[str, Any]], params: SamplingParams
) -> TurnRequest:
    tools = function_tools(body.tools)
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    conversation = msgspec.convert([*instructions, *messages], list[ChatMessage])
    return TurnRequest(
        messages=template_messages(conversation),
        params=params,
        tools=tools,
        tool_choice=read_tool_choice(body.tool_choice, tools, is_parallel=body.parallel_tool_calls),
        template_variables={"enable_thinking": False} if body.reasoning.effort == "none" else {},
        terms=terms_of(request, body),
    )


def _sampling_params(serving: Serving, body: ResponsesRequest) -> SamplingParams:
    wanted = body.text.format or PLAIN_TEXT
    if wanted.type == "json_schema" and wanted.schema is None:
        raise invalid("text.format.schema", "text.format has no schema; send one")
    has_logprobs = body.top_logprobs is not None or LOGPROBS in body.include
    fields = GenerationFields(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        stream=body.stream,
        response_format=ResponseFormat(wanted.type, schema=wanted.schema),
    )
    return sampling_params(
        fields,
        serving.engine.ready,
        max_tokens=body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if has_logprobs else None,
    )


def _response(serving: Serving, body: ResponsesRequest, params: SamplingParams) -> Response:
    """The response before it has begun."""
    repeated = {name: getattr(body, name) for name in Response.__struct_fields__ if hasattr(body, name)}
    own: dict[str, Any] = {
        "id": f"resp_{uuid4().hex}",
        "created_at": int(time.time()),
        "model": serving.model_name(body.model),
        "output": [],
        "temperature": params.temperature,
        "top_p": params.top_p,
        "text": {"format": body.text.format or PLAIN_TEXT},
        "tools": [{"strict": None, "parameters": None} | tool for tool in body.tools if tool.get("type") == "function"],
    }
    return Response(**repeated | own)


def _stored(request: Request) -> StoredResponse:
    return _store_of(request).get(tenant_salt(request, ""), request.path_params["response_id"])


def _store_of(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.response_store
    return store
