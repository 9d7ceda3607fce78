"""Answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The body, of whatever msgspec can write down, as JSON."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
