"""Bodies of requests, right but for one thing, and what must come of that."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server.scripted_core import ScriptedCore

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any] | bytes) -> httpx.Response:
    """Send the body; a dict gets the field that the path requires, unless it has it."""
    required = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hi"}]}
    content = body if isinstance(body, bytes) else json.dumps(required | body).encode()
    return await client.post(path, content=content, headers={"content-type": "application/json"})


async def assert_refused(
    client: httpx.AsyncClient, core: ScriptedCore, path: str, body: dict[str, Any] | bytes, param: str | None
) -> None:
    """A short 400 that names the field, in valid JSON; nothing reaches the engine; the next request is served."""
    num_sent = len(core.sent)
    response = await post(client, path, body)
    assert response.status_code == 400, (body, response.text)
    error = json.loads(response.content, parse_constant=pytest.fail)["error"]
    assert error["param"] == param, error
    assert len(response.content) < 2000
    assert len(core.sent) == num_sent
    assert (await post(client, COMPLETIONS, {"prompt": [5]})).status_code == 200
