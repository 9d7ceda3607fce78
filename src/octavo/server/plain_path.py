"""PlainPath: the many ways to write a path, and the one that the router knows."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send


class PlainPath:
    """ASGI middleware: /v1//models/ means /models. No redirect, since clients lose bodies and keys on the way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the exchange on under its plain path: all that is inside, guard and router alike, sees only that."""
        if scope["type"] == "http":
            scope = {**scope, "path": plain_path(scope["path"])}
        await self._app(scope, receive, send)


def plain_path(path: str) -> str:
    """The path without /v1, doubled slashes and a slash at its end."""
    path = re.sub("/+", "/", path).removesuffix("/")
    return re.sub("^/v1(?=/|$)", "", path) or "/"
