"""The HTTP application: routes, and what holds for all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.core.admission import RequestRejected
from octavo.core.messages import StepStats
from octavo.core.sampling_params import ParameterError
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.chat_template import ChatTemplateError
from octavo.engine.engine_status import EngineUnavailableError
from octavo.server.access_log import AccessLog
from octavo.server.chat import create_chat_completion
from octavo.server.chat_protocol import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from octavo.server.completion_protocol import Completion, CompletionRequest
from octavo.server.completions import create_completion
from octavo.server.endpoint import Endpoint
from octavo.server.errors import ApiError, as_api_error
from octavo.server.health import Version, get_health, get_load, get_root, get_version
from octavo.server.models import list_models, retrieve_model
from octavo.server.openai import Model, ModelList
from octavo.server.parameters import NEUTRAL_VALUES
from octavo.server.serving import Serving

ENDPOINTS = (
    Endpoint(
        path="/chat/completions",
        handle=create_chat_completion,
        body=ChatCompletionRequest,
        neutral_values=NEUTRAL_VALUES | {"add_special_tokens": (False,)},  # writing them is the template's business
        answer=ChatCompletion,
        event=ChatCompletionChunk,
    ),
    Endpoint(
        path="/completions",
        handle=create_completion,
        body=CompletionRequest,
        neutral_values=NEUTRAL_VALUES | {"add_special_tokens": (True,)},
        answer=Completion,
        event=Completion,
    ),
    Endpoint(path="/models", handle=list_models, answer=ModelList),
    Endpoint(path="/models/{model_id:path}", handle=retrieve_model, answer=Model),
    Endpoint(path="/health", handle=get_health),
    Endpoint(path="/ping", handle=get_health),
    Endpoint(path="/load", handle=get_load, answer=StepStats),
    Endpoint(path="/version", handle=get_version, answer=Version),
    Endpoint(path="/", handle=get_root),
)

# Whatever else is raised is a fault of ours: AccessLog writes it down and answers for it.
EXPECTED_ERRORS = (
    ApiError,
    ChatTemplateError,
    EngineUnavailableError,
    ParameterError,
    RequestRejected,
)


class PlainPath:
    """ASGI middleware: /v1//models/ means /models. No redirect, since clients lose bodies and keys on the way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the exchange on under its plain path."""
        if scope["type"] == "http":
            path = re.sub("/+", "/", scope["path"]).removesuffix("/")
            scope = {**scope, "path": re.sub("^/v1(?=/|$)", "", path) or "/"}
        await self._app(scope, receive, send)


def create_app(engine: AsyncEngine, model_names: Sequence[str] = ()) -> Starlette:
    """The application over an engine, which may still be loading. Without `model_names`: the name the engine found."""
    app = Starlette(
        routes=[endpoint.route() for endpoint in ENDPOINTS],
        middleware=[
            Middleware(AccessLog),
            Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]),
            Middleware(PlainPath),
        ],
        exception_handlers={HTTPException: _answer_no_route, **dict.fromkeys(EXPECTED_ERRORS, _answer_error)},
    )
    app.state.serving = Serving(engine, model_names)
    return app


async def _answer_no_route(request: Request, error: Exception) -> Response:
    """404 and 405, which the router raises."""
    assert isinstance(error, HTTPException)
    code = error.detail.lower().replace(" ", "_")
    paths = ", ".join(sorted(endpoint.path for endpoint in ENDPOINTS))
    message = f"{request.method} {request.url.path}: {error.detail}; served here, with or without /v1: {paths}"
    response = ApiError(error.status_code, code, message).response()
    response.headers.update(error.headers or {})  # Allow
    return response


async def _answer_error(_: Request, error: Exception) -> Response:
    return as_api_error(error).response()
