"""The HTTP application: what holds for every endpoint."""

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
from octavo.core.sampling_params import ParameterError
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.chat_template import ChatTemplateError
from octavo.engine.engine_status import EngineUnavailableError
from octavo.server.access_log import AccessLog
from octavo.server.errors import ApiError, as_api_error
from octavo.server.openapi import ApiDocument
from octavo.server.routes import ENDPOINTS
from octavo.server.serving import Serving

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
    app.state.api_document = ApiDocument(ENDPOINTS)
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
