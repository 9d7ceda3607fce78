"""On what terms a client is served: what its key, its body and the operator say together."""

from __future__ import annotations

from starlette.requests import Request

from octavo.engine.request_terms import RequestTerms
from octavo.server.api_keys import tenant_salt
from octavo.server.generation_fields import GenerationFields
from octavo.server.openai.responses_protocol import ResponsesRequest
from octavo.server.serving import serving_of

MAX_TENANT_CHARS = 128
NO_WISHES = GenerationFields()  # of a client whose API has no fields for them


def terms_of(request: Request, body: GenerationFields | ResponsesRequest = NO_WISHES) -> RequestTerms:
    """The terms of a request. With API keys, a tenant is a key; without, it is what the client calls its user.

    A client may ask for less time than the operator allows, not for more.
    """
    config = serving_of(request).config
    caller: bytes | None = getattr(request.state, "caller", None)
    limits = [limit for limit in (body.timeout, config.request_timeout_s) if limit is not None]
    return RequestTerms(
        priority=body.priority,
        tenant=(body.user or "")[:MAX_TENANT_CHARS] if caller is None else caller.hex(),
        cache_salt=tenant_salt(request, body.cache_salt),
        queue_timeout_s=config.queue_timeout_s,
        timeout_s=min(limits, default=None),
        explains_cache_miss=isinstance(body, GenerationFields) and body.explain_cache_miss,
        traceparent=request.headers.get("traceparent", ""),
    )
