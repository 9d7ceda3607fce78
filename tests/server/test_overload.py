"""What a server says when too much is waiting: at once, and when to come back."""

from __future__ import annotations

import asyncio

import pytest

from octavo.config import EngineConfig
from octavo.core.messages import RequestOutput
from octavo.engine import async_engine
from octavo.engine.async_engine import AsyncEngine
from tests.engine.tiny_model import byte_id

pytestmark = pytest.mark.anyio

COMPLETION = {"prompt": "Hi"}
MESSAGE = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def engine(core, tiny_model, monkeypatch):
    """Two may run and one may wait."""
    monkeypatch.setattr(async_engine, "CoreClient", core)
    engine = AsyncEngine(EngineConfig(str(tiny_model), max_num_seqs=2, max_queued_requests=1, max_queued_tokens=40))
    await engine.start()
    core.become_ready()
    await engine.wait_until_ready()
    yield engine
    await engine.close()


async def sent(core, num_requests):
    while len(core.requests) < num_requests:
        await asyncio.sleep(0)


async def test_one_too_many_is_told_when_to_come_back(core, client, engine, monkeypatch):
    core.is_holding = True
    asked = [asyncio.create_task(client.post("/v1/completions", json=COMPLETION)) for _ in range(3)]
    await sent(core, 3)
    monkeypatch.delattr(type(engine.texts), "render_chat")  # that is costly, and not for those who are refused
    for path, body, status in (
        ("/v1/completions", COMPLETION, 429),
        ("/v1/completions", COMPLETION | {"stream": True}, 429),
        ("/v1/chat/completions", {"messages": MESSAGE["messages"]}, 429),
        ("/v1/messages", MESSAGE, 529),
    ):
        refused = await client.post(path, json=body)
        assert refused.status_code == status, refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 60
    error = (await client.post("/v1/completions", json=COMPLETION)).json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "server_overloaded")
    assert "2 may run and 1 wait" in error["message"]
    assert (
        'octavo:admission_rejections_total{model_name="tiny",reason="server_overloaded"} 5.0'
        in (await client.get("/metrics")).text
    )
    core.is_holding = False
    for request in core.requests:
        core.answer(request)
    assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 3
    assert (await client.post("/v1/completions", json=COMPLETION)).status_code == 200


async def test_prompts_that_are_too_long_together_are_refused(core, client):
    core.is_holding = True
    asked = asyncio.create_task(client.post("/v1/completions", json={"prompt": "x" * 30}))
    await sent(core, 1)
    refused = await client.post("/v1/completions", json={"prompt": "y" * 30})
    assert refused.status_code == 429
    assert "40 may wait together" in refused.json()["error"]["message"]
    core.say_outputs(RequestOutput(core.requests[0].request_id, 0, (byte_id(ord("a")),)))  # its prompt is through
    second = asyncio.create_task(client.post("/v1/completions", json={"prompt": "y" * 30}))
    await sent(core, 2)
    for task in (asked, second):
        task.cancel()
    await asyncio.gather(asked, second, return_exceptions=True)


async def test_who_leaves_makes_room(core, client):
    core.is_holding = True
    for _ in range(10):
        asked = [asyncio.create_task(client.post("/v1/completions", json=COMPLETION)) for _ in range(3)]
        num_sent = len(core.requests)
        await sent(core, num_sent + 3)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    assert len(core.aborted) == 30
