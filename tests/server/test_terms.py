"""Whose a request is, and how long it may take: what key, body and operator say together."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from octavo.core.messages import RequestOutput
from octavo.server.app import create_app
from octavo.server.server_config import ServerConfig
from tests.engine.tiny_model import byte_id
from tests.server.conftest import client_of
from tests.server.events import read_events

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi"},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 5, "messages": MESSAGES},
}


async def sent(core, num_requests: int = 1):
    while len(core.requests) < num_requests:
        await asyncio.sleep(0)
    return core.requests[-1]


@pytest.mark.parametrize("path", ASKED)
async def test_a_tenant_is_a_key_or_else_a_user(engine, core, path):
    async with client_of(create_app(engine, ServerConfig(api_keys=("one", "two")))) as client:
        for key in ("one", "two"):
            body = ASKED[path] | {"model": None, "user": "somebody"}
            await client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    first, second = (request.tenant for request in core.requests)
    assert first and second and first != second and "somebody" not in first
    if path != "/v1/messages":
        async with client_of(create_app(engine)) as client:
            await client.post(path, json=ASKED[path] | {"user": "u" * 1000})
        assert core.requests[-1].tenant == "u" * 128


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
async def test_a_client_may_ask_for_less_time_and_not_for_more(engine, core, path):
    config = ServerConfig(queue_timeout_s=5.0, request_timeout_s=60.0)
    async with client_of(create_app(engine, config)) as client:
        for asked, expected in ((None, 60.0), (7.5, 7.5), (900, 60.0)):
            before_s = time.monotonic()
            await client.post(path, json=ASKED[path] | {"timeout": asked})
            request = core.requests[-1]
            assert before_s <= request.arrival_s <= time.monotonic()
            assert request.deadline_s == pytest.approx(request.arrival_s + expected)
            assert request.queue_deadline_s == pytest.approx(request.arrival_s + 5.0)
        assert (await client.post(path, json=ASKED[path] | {"timeout": 0})).status_code == 400


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_has_not_begun_in_time_is_told_so(client, core, path, stream):
    core.script = lambda request: [RequestOutput(request.request_id, 0, (), finish_reason="timeout")]
    response = await client.post(path, json=ASKED[path] | {"stream": stream})
    if stream:
        assert "time was over" in response.text
    else:
        assert response.status_code == 503 and response.headers["retry-after"]
        assert "time was over before it had begun" in response.json()["error"]["message"]


def cut(request) -> list[RequestOutput]:
    letters = [RequestOutput(request.request_id, 0, (byte_id(ord(letter)),)) for letter in "ab"]
    return [*letters, RequestOutput(request.request_id, 0, (), finish_reason="timeout")]


async def test_what_was_cut_by_time_is_given_as_far_as_it_is(client, core):
    core.script = cut
    completion = (await client.post("/v1/completions", json=ASKED["/v1/completions"])).json()
    [choice] = completion["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "timeout")
    streamed = await client.post("/v1/chat/completions", json=ASKED["/v1/chat/completions"] | {"stream": True})
    *_, last = read_events(streamed)
    assert last["choices"][0]["finish_reason"] == "timeout"


@pytest.mark.parametrize(("path", "end"), [("/v1/responses", "response.failed"), ("/v1/messages", "error")])
async def test_apis_that_know_no_such_end_get_an_error(client, core, path, end):
    core.script = cut
    streamed = await client.post(path, json=ASKED[path] | {"stream": True})
    lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line.startswith("data: {")]
    last = json.loads(lines[-1])
    assert last["type"] == end and "time was over" in json.dumps(last)
