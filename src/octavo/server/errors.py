"""Errors on the wire: OpenAI's envelope, or Anthropic's on its routes, for everything that can go wrong."""

from __future__ import annotations

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import ParameterError
from octavo.engine.chat_template import ChatTemplateError
from octavo.engine.engine_status import EngineUnavailableError
from octavo.engine.queue_limit import EngineOverloadedError
from octavo.server.json_response import json_response
from octavo.server.plain_path import plain_path

MAX_MESSAGE_CHARS = 1000  # a message quotes the client's value, which may be megabytes long
RETRY_AFTER_S = 1  # of errors that do not know better
TYPE_BY_STATUS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
ANTHROPIC_TYPE_BY_STATUS = TYPE_BY_STATUS | {413: "request_too_large", 529: "overloaded_error"}


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong: all four fields are always there."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """The whole body of an error, and the data of an error event in a stream."""

    error: ErrorBody


class AnthropicErrorBody(msgspec.Struct, frozen=True):
    """What went wrong."""

    type: str
    message: str


class AnthropicErrorEnvelope(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The whole body of an error under /v1/messages, and the data of an error event in a stream there."""

    error: AnthropicErrorBody
    request_id: str


class ApiError(Exception):
    """An answer that is an error. `param` names the field at fault, as a path into the request's body."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    @property
    def envelope(self) -> ErrorEnvelope:
        """The error as OpenAI's clients read it."""
        kind = TYPE_BY_STATUS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return ErrorEnvelope(ErrorBody(self.message, kind, self.param, self.code))

    @property
    def anthropic_status(self) -> int:
        """The status under /v1/messages, where an overload has one of its own."""
        return 529 if self.code == EngineOverloadedError.code else self.status

    def anthropic_envelope(self, request_id: str) -> AnthropicErrorEnvelope:
        """The error as Anthropic's clients read it. `request_id` is the one in the response's headers."""
        kind = ANTHROPIC_TYPE_BY_STATUS.get(
            self.anthropic_status, "api_error" if self.status >= 500 else "invalid_request_error"
        )
        return AnthropicErrorEnvelope(AnthropicErrorBody(kind, self.message), request_id)

    @property
    def message(self) -> str:
        """One line, of bounded length."""
        return shorten(" ".join(str(self).split()), MAX_MESSAGE_CHARS)


def error_response(scope: Scope, error: Exception) -> Response:
    """The error as a response, in the form of the API that was asked.

    A client that is told "unavailable" is told when to come back, too.
    """
    api_error = as_api_error(error)
    is_anthropic = f"{plain_path(scope['path'])}/".startswith("/messages/")
    body = api_error.anthropic_envelope(scope["state"]["request_id"]) if is_anthropic else api_error.envelope
    status = api_error.anthropic_status if is_anthropic else api_error.status
    retry_after_s = getattr(error, "retry_after_s", RETRY_AFTER_S)
    headers = {"retry-after": str(retry_after_s)} if api_error.status in (429, 503) else None
    return json_response(body, status, headers)


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """The client's mistake in the field `param`."""
    return ApiError(400, code, message, param)


def as_api_error(error: Exception) -> ApiError:
    """The answer to an exception; what nobody foresaw is a 500 without details."""
    match error:
        case ApiError():
            return error
        case ParameterError():
            return invalid(error.param, str(error))
        case ChatTemplateError():
            return invalid("messages", str(error))
        case RequestRejected():
            return ApiError(400, error.code, str(error), error.param)
        case EngineOverloadedError():
            return ApiError(429, error.code, str(error))
        case EngineUnavailableError():
            return ApiError(503, f"engine_{error.state.value}", str(error))
        case _:
            return ApiError(500, "internal_error", "the server failed to answer this request; its log says why")


def shorten(text: str, max_chars: int) -> str:
    """`text`, its middle left out if it is longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} ... {text[-half:]}"
