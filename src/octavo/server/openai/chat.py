"""POST /v1/chat/completions."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.engine.wire import Ready
from octavo.server.errors import invalid
from octavo.server.json_response import json_response
from octavo.server.openai.answer_head import AnswerHead, check_stream_options
from octavo.server.openai.chat_answer import ChatAnswer
from octavo.server.openai.chat_messages import template_messages, template_variables
from octavo.server.openai.chat_protocol import ChatCompletionRequest
from octavo.server.parameters import sampling_params
from octavo.server.serving import Serving, serving_of
from octavo.server.sse import EventStream
from octavo.server.terms import terms_of
from octavo.server.turns.tools import read_tool_choice
from octavo.server.turns.turn import TurnRequest, open_turn


async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response | EventStream:
    """Continue a conversation by one turn, or by n alternatives of it."""
    serving = serving_of(request)
    check_stream_options(body)
    model = serving.model_name(body.model)
    requested = replace(turn_request(body, serving), terms=terms_of(request, body))
    turn = await open_turn(serving, requested)
    answer = ChatAnswer(AnswerHead("chatcmpl", model, body), turn, serving.engine.tokenizer, body)
    if body.stream:
        return EventStream(answer.chunks(), turn.close)
    return json_response(await answer.whole())


def turn_request(body: ChatCompletionRequest, serving: Serving) -> TurnRequest:
    """The turn that the body asks for. Raises the error for what the server does not do, and ParameterError."""
    if body.chat_template is not None and not serving.config.trust_request_chat_template:
        message = "chat_template is a program, and refused; --trust-request-chat-template lets clients send it"
        raise invalid("chat_template", message, "unsupported_parameter")
    if body.continue_final_message and body.add_generation_prompt:
        raise invalid("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
    variables = template_variables(body.chat_template_kwargs)
    if body.reasoning_effort is not None:
        variables = {"reasoning_effort": body.reasoning_effort} | variables
    if body.reasoning_effort == "none":
        variables = {"enable_thinking": False} | variables
    return TurnRequest(
        messages=template_messages(body.messages),
        params=_sampling_params(body, serving.engine.ready),
        tools=body.tools,
        tool_choice=read_tool_choice(body.tool_choice, body.tools, is_parallel=body.parallel_tool_calls),
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message,
        add_special_tokens=body.add_special_tokens,
        chat_template=body.chat_template,
        template_variables=variables,
    )


def _sampling_params(body: ChatCompletionRequest, ready: Ready) -> SamplingParams:
    num_top, limit = body.top_logprobs, ready.config.max_logprobs
    if num_top is not None and not body.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs: true")
    if num_top is not None and limit != -1 and not 0 <= num_top <= limit:
        raise invalid("top_logprobs", f"top_logprobs is {num_top}; it must be at least 0 and at most {limit}")
    return sampling_params(
        body,
        ready,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=(num_top or 0) if body.logprobs else None,
    )
