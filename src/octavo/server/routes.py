"""Every endpoint, with what it takes and gives. Paths are written as clients know them; /v1 may be left out."""

from __future__ import annotations

from octavo.core.messages import StepStats
from octavo.server.anthropic.messages import count_tokens, create_message
from octavo.server.anthropic.messages_protocol import (
    MESSAGES_NEUTRAL_VALUES,
    CountTokensRequest,
    Message,
    MessageEvent,
    MessagesRequest,
    TokenCount,
)
from octavo.server.dashboard import DashboardData, get_dashboard, get_dashboard_data
from octavo.server.endpoint import Endpoint
from octavo.server.errors import AnthropicErrorEnvelope
from octavo.server.health import (
    Version,
    get_health,
    get_livez,
    get_load,
    get_metrics,
    get_root,
    get_startupz,
    get_tables,
    get_version,
)
from octavo.server.openai.chat import create_chat_completion
from octavo.server.openai.chat_protocol import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from octavo.server.openai.completion_protocol import Completion, CompletionRequest
from octavo.server.openai.completions import create_completion
from octavo.server.openai.models import Model, ModelList, list_models, retrieve_model
from octavo.server.openai.responses import cancel_response, create_response, delete_response, get_response
from octavo.server.openai.responses_protocol import (
    RESPONSES_NEUTRAL_VALUES,
    Response,
    ResponseDeleted,
    ResponseEvent,
    ResponsesRequest,
)
from octavo.server.openapi import get_docs, get_openapi
from octavo.server.parameters import NEUTRAL_VALUES
from octavo.server.tokenization import DetokenizedText, DetokenizeRequest, TokenizeRequest, Tokens, detokenize, tokenize

ENDPOINTS = (
    Endpoint(
        path="/v1/chat/completions",
        handle=create_chat_completion,
        body=ChatCompletionRequest,
        neutral_values=NEUTRAL_VALUES,
        answer=ChatCompletion,
        event=ChatCompletionChunk,
    ),
    Endpoint(
        path="/v1/completions",
        handle=create_completion,
        body=CompletionRequest,
        neutral_values=NEUTRAL_VALUES,
        answer=Completion,
        event=Completion,
    ),
    Endpoint(
        path="/v1/responses",
        handle=create_response,
        body=ResponsesRequest,
        neutral_values=RESPONSES_NEUTRAL_VALUES,
        answer=Response,
        event=ResponseEvent,
    ),
    Endpoint(path="/v1/responses/{response_id}", handle=get_response, answer=Response),
    Endpoint(path="/v1/responses/{response_id}", verb="DELETE", handle=delete_response, answer=ResponseDeleted),
    Endpoint(path="/v1/responses/{response_id}/cancel", verb="POST", handle=cancel_response, answer=Response),
    Endpoint(
        path="/v1/messages",
        handle=create_message,
        body=MessagesRequest,
        neutral_values=MESSAGES_NEUTRAL_VALUES,
        answer=Message,
        event=MessageEvent,
        error=AnthropicErrorEnvelope,
    ),
    Endpoint(
        path="/v1/messages/count_tokens",
        handle=count_tokens,
        body=CountTokensRequest,
        answer=TokenCount,
        error=AnthropicErrorEnvelope,
    ),
    Endpoint(path="/v1/models", handle=list_models, answer=ModelList),
    Endpoint(path="/v1/models/{model_id:path}", handle=retrieve_model, answer=Model),
    Endpoint(path="/tokenize", handle=tokenize, body=TokenizeRequest, answer=Tokens),
    Endpoint(path="/detokenize", handle=detokenize, body=DetokenizeRequest, answer=DetokenizedText),
    *(Endpoint(path=path, handle=get_health, is_open=True) for path in ("/health", "/ping", "/readyz")),
    Endpoint(path="/livez", handle=get_livez, is_open=True),
    Endpoint(path="/startupz", handle=get_startupz, is_open=True),
    Endpoint(path="/load", handle=get_load, answer=StepStats),
    Endpoint(path="/debug/tables", handle=get_tables, answer=dict[str, int]),
    Endpoint(path="/metrics", handle=get_metrics, is_open=True),
    Endpoint(path="/version", handle=get_version, answer=Version, is_open=True),
    Endpoint(path="/dashboard", handle=get_dashboard, is_open=True),  # which knows nothing by itself
    Endpoint(path="/dashboard/data", handle=get_dashboard_data, answer=DashboardData),
    Endpoint(path="/openapi.json", handle=get_openapi),
    Endpoint(path="/docs", handle=get_docs),
    Endpoint(path="/", handle=get_root, is_open=True),
)
