"""On what terms a client is served: what its key, its body and the operator say together."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from octavo.engine.request_terms import RequestTerms
from octavo.server.api_keys import tenant_salt
from octavo.server.openai.fields import GenerationFields
from octavo.server.serving import serving_of

MAX_TENANT_CHARS = 128


def generation_terms(request: Request, body: GenerationFields) -> RequestTerms:
    """The terms of a request by the APIs that have all the fields."""
    terms = terms_of(
        request, priority=body.priority, cache_salt=body.cache_salt, user=body.user, timeout_s=body.timeout
    )
    return replace(terms, explains_cache_miss=body.explain_cache_miss)


def terms_of(
    request: Request,
    *,
    priority: int = 0,
    cache_salt: str = "",
    user: str | None = None,
    timeout_s: float | None = None,
) -> RequestTerms:
    """The terms of a request. With API keys, a tenant is a key; without, it is what the client calls its user.

    A client may ask for less time than the operator allows, not for more.
    """
    config = serving_of(request).config
    caller: bytes | None = getattr(request.state, "caller", None)
    limits = [limit for limit in (timeout_s, config.request_timeout_s) if limit is not None]
    return RequestTerms(
        priority=priority,
        tenant=(user or "")[:MAX_TENANT_CHARS] if caller is None else caller.hex(),
        cache_salt=tenant_salt(request, cache_salt),
        queue_timeout_s=config.queue_timeout_s,
        timeout_s=min(limits, default=None),
        traceparent=request.headers.get("traceparent", ""),
    )
