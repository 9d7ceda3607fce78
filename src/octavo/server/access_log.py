"""What every exchange gets, whatever its route: an x-request-id, a line in the log, an error body if all else fails."""

from __future__ import annotations

import logging
import re
import time
from urllib.parse import quote
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import error_response

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left; it is only ever logged
MAX_REQUEST_ID_CHARS = 200
# What machines ask every few seconds.
PROBE_PATHS = ("/health", "/ping", "/readyz", "/livez", "/startupz", "/load", "/metrics", "/dashboard/data")

logger = logging.getLogger("octavo.access")


class AccessLog:
    """ASGI middleware; the outermost, so that it sees what the client sees."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the exchange on and log how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.monotonic()
        request_id = _request_id(Headers(scope=scope))
        Request(scope).state.request_id = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = request_id  # by OpenAI's name and by Anthropic's
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_CLOSED_REQUEST
        except Exception as error:
            logger.exception("%s %s failed", scope["method"], quote(scope["path"]))
            if status:
                raise  # half an answer is out; only closing the connection can tell the client
            await error_response(scope, error)(scope, receive, send_with_id)
        elapsed_ms = (time.monotonic() - started_s) * 1000
        level = logging.DEBUG if scope["path"] in PROBE_PATHS else logging.INFO
        fields = {
            "method": scope["method"],
            "path": quote(scope["path"]),
            "status": status,
            "elapsed_ms": round(elapsed_ms),
            "request_id": request_id,
        }
        logger.log(level, "%s %s %d %d ms %s", *fields.values(), extra=fields)


def _request_id(headers: Headers) -> str:
    """The client's own id, or a new one if it sent none that a log can show.

    Only echoed and logged: requests are told apart by ids that the engine makes, so two may bring the same.
    """
    sent = headers.get("x-request-id", "")[:MAX_REQUEST_ID_CHARS]
    return sent if re.fullmatch("[ -~]+", sent) else uuid4().hex
