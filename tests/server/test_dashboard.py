"""The page that shows the engine at work, and what it draws."""

from __future__ import annotations

import asyncio
import re

import pytest

from octavo.core.snapshot import RequestSnapshot, Snapshot
from octavo.engine import wire
from octavo.server.app import create_app
from octavo.server.server_config import ServerConfig
from tests.server.conftest import client_of
from tests.server.scripted_core import MAX_MODEL_LEN

pytestmark = pytest.mark.anyio

RUNNING = RequestSnapshot("req-1", 0, "running", 20, 16, 21, 22, 60, 0, (4, 7))


async def test_the_page_needs_nothing_from_elsewhere(client):
    response = await client.get("/dashboard")
    assert response.headers["content-type"].startswith("text/html")
    assert not re.findall(r"https?://|//\w|@import|url\(", response.text.replace("// ", ""))
    for word in re.findall(r'byId\("([\w-]+)"\)|show\("([\w-]+)"', response.text):
        assert f'id="{"".join(word)}"' in response.text


async def test_data_tell_what_the_engine_does(client, core):
    await client.post("/v1/completions", json={"prompt": "Hi"})
    core.is_holding = True
    asking = [asyncio.create_task(client.get("/dashboard/data")) for _ in range(3)]
    while not [message for message in core.sent if isinstance(message, wire.Inspect)]:
        await asyncio.sleep(0.001)
    core.say(wire.Inspection(Snapshot((RUNNING,), (), "." * 4 + "h..s", 16)))
    first, *others = [response.json() for response in await asyncio.gather(*asking)]
    assert len([message for message in core.sent if isinstance(message, wire.Inspect)]) == 1  # for all who look
    assert (first["model"], first["stats"]["num_running"]) == ("tiny", 1)
    assert first["snapshot"]["running"][0]["block_ids"] == [4, 7]
    assert first["snapshot"]["blocks"] == "....h..s"
    assert len(first["curves"]["output_tokens_per_s"]) == len(first["curves"]["ttft_p95_ms"])
    assert [other["snapshot"] for other in others] == [first["snapshot"]] * 2


async def test_nobody_who_leaves_takes_the_answer_along(client, core):
    core.is_holding = True
    leaving, staying = [asyncio.create_task(client.get("/dashboard/data")) for _ in range(2)]
    while not core.sent:
        await asyncio.sleep(0.001)
    leaving.cancel()
    core.say(wire.Inspection(Snapshot((), (), ".", 16)))
    assert (await asyncio.wait_for(staying, 5)).json()["snapshot"]["blocks"] == "."
    core.is_holding = False
    assert len((await client.get("/dashboard/data")).json()["snapshot"]["blocks"]) == MAX_MODEL_LEN // 16


async def test_who_waits_learns_of_the_end(client, core, engine):
    core.is_holding = True
    asking = asyncio.create_task(client.get("/dashboard/data"))
    while not core.sent:
        await asyncio.sleep(0.001)
    core.say(wire.Failed("RuntimeError: a step went wrong"))
    core.kill()
    for response in (await asyncio.wait_for(asking, 5), await client.get("/dashboard/data")):
        assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_dead")
        assert "a step went wrong" in response.json()["error"]["message"]


async def test_while_loading_the_phase_is_told(loading_engine, core):
    core.say(wire.Phase("loading weights"))
    await asyncio.sleep(0.01)
    async with client_of(create_app(loading_engine)) as client:
        assert (await client.get("/dashboard")).status_code == 200
        response = await client.get("/dashboard/data")
        assert response.status_code == 503
        assert "loading weights" in response.json()["error"]["message"]


async def test_data_need_a_key_where_there_is_one(engine):
    async with client_of(create_app(engine, ServerConfig(api_keys=("secret",)))) as client:
        assert (await client.get("/dashboard")).status_code == 200
        assert (await client.get("/dashboard/data")).status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert (await client.get("/dashboard/data", headers=headers)).status_code == 200
