"""The HTTP application: what holds for every endpoint."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import ParameterError
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.chat_template import ChatTemplateError
from octavo.engine.engine_status import EngineUnavailableError
from octavo.engine.queue_limit import EngineOverloadedError
from octavo.server.access_log import AccessLog
from octavo.server.api_keys import ApiKeys
from octavo.server.errors import ApiError, error_response
from octavo.server.openai.response_store import ResponseStore
from octavo.server.openapi import ApiDocument
from octavo.server.plain_path import PlainPath
from octavo.server.routes import ENDPOINTS
from octavo.server.server_config import ServerConfig
from octavo.server.serving import Serving

# Whatever else is raised is a fault of ours: AccessLog writes it down and answers for it.
EXPECTED_ERRORS = (
    ApiError,
    ChatTemplateError,
    EngineOverloadedError,
    EngineUnavailableError,
    ParameterError,
    RequestRejected,
)


def create_app(engine: AsyncEngine, config: ServerConfig | None = None) -> Starlette:
    """The application over an engine, which may still be loading."""
    config = config or ServerConfig()
    app = Starlette(
        routes=[endpoint.route() for endpoint in ENDPOINTS],
        middleware=_middleware(config),
        exception_handlers={HTTPException: _answer_no_route, **dict.fromkeys(EXPECTED_ERRORS, _answer_error)},
    )
    app.state.serving = Serving(engine, config)
    app.state.api_document = ApiDocument(ENDPOINTS)
    app.state.response_store = ResponseStore()
    return app


def _middleware(config: ServerConfig) -> list[Middleware]:
    """The outermost first."""
    layers = [
        Middleware(AccessLog),
        Middleware(CORSMiddleware, allow_origins=config.allowed_origins, allow_methods=["*"], allow_headers=["*"]),
        Middleware(PlainPath),
    ]
    if config.api_keys:
        open_paths = {endpoint.path for endpoint in ENDPOINTS if endpoint.is_open}
        layers.append(Middleware(ApiKeys, keys=config.api_keys, open_paths=open_paths))
    return layers


async def _answer_no_route(request: Request, error: Exception) -> Response:
    """404 and 405, which the router raises."""
    assert isinstance(error, HTTPException)
    code = error.detail.lower().replace(" ", "_")
    paths = ", ".join(sorted({endpoint.path for endpoint in ENDPOINTS}))
    message = f"{request.method} {request.scope['path']}: {error.detail}; served here, with or without /v1: {paths}"
    response = error_response(request.scope, ApiError(error.status_code, code, message))
    response.headers.update(error.headers or {})  # Allow
    return response


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, error)
