"""Endpoint: what a route takes and gives, said once; the router and the API document are both made of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from octavo.server.disconnect import finish_or_disconnect
from octavo.server.errors import ErrorEnvelope
from octavo.server.parameters import refuse_unsupported
from octavo.server.request_body import convert, read_object
from octavo.server.serving import serving_of


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One route. Its summary in the API document is the first line of the handler's docstring."""

    path: str  # as clients know it; PlainPath takes /v1 off
    handle: Callable[..., Coroutine[Any, Any, Any]]  # (request, body) -> response; (request) where there is no body
    body: type[msgspec.Struct] | None = None  # what is sent
    verb: str | None = None  # the HTTP method; None: POST with a body, GET without
    neutral_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # of fields that are refused otherwise
    is_open: bool = False  # to clients without an API key
    answer: type | None = None  # the JSON of a 200
    event: Any = None  # a struct, or a union of some: the data of each event, where the answer can be streamed
    error: type[msgspec.Struct] = ErrorEnvelope

    @property
    def kinds(self) -> list[Any]:
        """Every type that crosses the wire here."""
        return [kind for kind in (self.body, self.answer, self.event, self.error) if kind is not None]

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.verb or ("GET" if self.body is None else "POST")

    def route(self) -> Route:
        """The endpoint as the router takes it."""
        path = self.path.removeprefix("/v1")
        return Route(path, self.handle if self.body is None else self._serve_body, methods=[self.method])

    async def _serve_body(self, request: Request) -> Any:
        assert self.body is not None
        serving_of(request).engine.check_ready()
        fields = await read_object(request)
        refuse_unsupported(fields, self.neutral_values)
        body = convert(fields, self.body)
        return await finish_or_disconnect(request.receive, self.handle(request, body))
