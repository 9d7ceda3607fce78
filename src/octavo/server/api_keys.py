"""ApiKeys: who may ask. Every path needs a key but those that are open by name."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence, Set
from hashlib import blake2b

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError, error_response


class ApiKeys:
    """ASGI middleware. It stands between PlainPath and the router, so that both look at the same path.

    Clients send `Authorization: Bearer KEY` or, as Anthropic's do, `x-api-key: KEY`.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], open_paths: Set[str]) -> None:
        self._app = app
        # Digests are of one length whatever the key, and which byte of them differs says nothing about the key.
        self._digests = [_digest(key.encode()) for key in keys]
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the exchange on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            caller = self._caller(Headers(scope=scope))
            if caller is None:
                message = "no valid API key; send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"
                response = error_response(scope, ApiError(401, "invalid_api_key", message))
                response.headers["www-authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
            Request(scope).state.caller = caller
        await self._app(scope, receive, send)

    def _caller(self, headers: Headers) -> bytes | None:
        """The digest of the key that the client sent, if it is one of ours. Every comparison is made in any case."""
        sent = [_digest(key) for key in _sent_keys(headers)]
        matches = [known for known in self._digests for digest in sent if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None


def tenant_salt(request: Request, cache_salt: str) -> str:
    """The salt of the request's prefix cache: with API keys, nobody can choose one that another key's requests have."""
    caller = getattr(request.state, "caller", None)
    return cache_salt if caller is None else hmac.digest(caller, cache_salt.encode(), "sha256").hex()


def _sent_keys(headers: Headers) -> Iterator[bytes]:
    for value in headers.getlist("authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip().encode("latin-1")  # how headers were decoded; what the client encoded in UTF-8 is back
    for value in headers.getlist("x-api-key"):
        yield value.encode("latin-1")


def _digest(key: bytes) -> bytes:
    return blake2b(key).digest()
