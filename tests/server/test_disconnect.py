"""A client that leaves takes its requests with it, at once, however it asked."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "seed": 1})
COMPLETIONS = ("/v1/completions", {"prompt": ["Hi", "Ho"], "seed": 1})


class Client:
    """Sends a request to the application and can leave."""

    def __init__(self, app, path, body):
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._to_app.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        self.received = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        self.task = asyncio.create_task(app(scope, self._to_app.get, self._receive))

    async def _receive(self, message):
        self.received.append(message)

    async def leave(self):
        self._to_app.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(self.task, 1)


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it does not happen")


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [CHAT, COMPLETIONS])
async def test_the_requests_are_aborted(app, core, engine, caplog, path, body, stream, n):
    caplog.set_level(logging.INFO, "octavo.access")
    core.is_holding = True
    client = Client(app, path, body | {"stream": stream, "n": n})
    await until(lambda: len(core.requests) == (2 if "prompt" in body else 1))
    assert not core.aborted
    for output in core.script(core.requests[0])[: 2 * n]:  # some tokens of the first request
        core.say_outputs(output)
    await asyncio.sleep(0.01)
    await client.leave()
    assert core.aborted == [request.request_id for request in core.requests]
    assert await engine.drain(timeout_s=1)  # nothing is left of them in the front
    assert f"POST {path} 499" in caplog.text


async def test_leaving_before_the_stream_has_begun(app, core):
    core.is_holding = True
    await Client(app, *CHAT).leave()  # the disconnect is right behind the body
    assert core.aborted == [request.request_id for request in core.requests]


async def test_outputs_that_cross_the_abort_are_ignored(app, core, client):
    core.is_holding = True
    leaver = Client(app, *CHAT)
    await until(lambda: core.requests)
    await leaver.leave()
    core.answer(core.requests[0])
    core.is_holding = False
    assert (await client.post(CHAT[0], json=CHAT[1])).status_code == 200


async def test_staying_to_the_end_aborts_nothing(app, core):
    for stream in (False, True):
        client = Client(app, CHAT[0], CHAT[1] | {"stream": stream})
        await asyncio.wait_for(client.task, 1)
        assert client.received[0]["status"] == 200
    assert not core.aborted
