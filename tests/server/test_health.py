"""The endpoints that are no generation, in every state of the engine."""

from __future__ import annotations

import asyncio

import httpx
import pytest

import octavo
from octavo.engine import wire
from octavo.server.app import create_app
from tests.server.conftest import client_of
from tests.server.events import read_events
from tests.server.scripted_core import MAX_MODEL_LEN

pytestmark = pytest.mark.anyio

CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
PROBES = ("/", "/v1", "/v1/", "//", "/health", "/ping")


async def assert_unavailable(client: httpx.AsyncClient, code: str) -> str:
    for path, body in (CHAT, ("/v1/completions", {"prompt": "Hi"})):
        for stream in (False, True):
            response = await client.post(path, json=body | {"stream": stream})
            assert response.status_code == 503
            assert response.headers["retry-after"]
            assert response.json()["error"]["code"] == code
            assert response.json()["error"]["type"] == "server_error"
    return response.json()["error"]["message"]


async def test_ready(client):
    for method in ("GET", "HEAD"):
        for path in PROBES:
            response = await client.request(method, path)
            assert (response.status_code, response.content) == (200, b"")
    assert (await client.get("/version")).json() == {"version": octavo.__version__}
    assert (await client.get("/load")).json()["num_free_blocks"] == MAX_MODEL_LEN // 16


async def test_metrics_count_what_was_answered(client):
    before = (await client.get("/metrics")).text
    assert 'octavo:generation_tokens_total{model_name="tiny"} 0.0' in before
    answer = (await client.post("/v1/completions", json={"prompt": "Hi"})).json()
    response = await client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    num_tokens = float(answer["usage"]["completion_tokens"])
    assert f'octavo:generation_tokens_total{{model_name="tiny"}} {num_tokens}' in response.text
    assert 'octavo:request_success_total{finished_reason="stop",model_name="tiny"} 1.0' in response.text


async def test_loading(loading_engine, core):
    core.say(wire.Phase("loading weights"))
    await asyncio.sleep(0.01)
    async with client_of(create_app(loading_engine)) as client:
        for path in ("/health", "/ping"):
            response = await client.get(path)
            assert response.status_code == 503
            body = response.json()
            assert (body["status"], body["phase"]) == ("loading", "loading weights")
            assert 0 < body["elapsed_s"] < 60
        assert (await client.get("/v1/models")).status_code == 503
        assert (await client.get("/")).status_code == 200
        assert "loading weights" in await assert_unavailable(client, "engine_loading")
        core.become_ready()
        await loading_engine.wait_until_ready()
        assert (await client.get("/health")).status_code == 200
        assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["tiny"]


async def test_death(client, core, engine):
    core.is_holding = True
    body = CHAT[1] | {"stream": True}
    asking = [asyncio.create_task(client.post(CHAT[0], json=body)) for _ in range(5)]
    asking += [asyncio.create_task(client.post(CHAT[0], json=CHAT[1]))]
    while len(core.requests) < 6:
        await asyncio.sleep(0.001)
    core.say(wire.Failed("RuntimeError: a step went wrong"))
    core.kill()
    *streams, whole = await asyncio.wait_for(asyncio.gather(*asking), 5)
    for response in streams:
        *_, last = read_events(response)
        assert last["error"]["code"] == "engine_dead"
        assert "a step went wrong" in last["error"]["message"]
    assert (whole.status_code, whole.json()["error"]["code"]) == (503, "engine_dead")
    response = await client.get("/health")
    assert response.status_code == 503
    assert response.json()["status"] == "dead"
    assert "a step went wrong" in response.json()["message"]
    assert "a step went wrong" in await assert_unavailable(client, "engine_dead")


async def test_a_killed_process_leaves_its_status(client, core, engine):
    core.kill()
    while (response := await client.get("/health")).status_code == 200:
        await asyncio.sleep(0.001)
    assert "SIGKILL" in response.json()["message"]


async def test_draining(client, core, engine):
    core.is_holding = True
    asking = asyncio.create_task(client.post(CHAT[0], json=CHAT[1]))
    while not core.requests:
        await asyncio.sleep(0.001)
    assert not await engine.drain(timeout_s=0.01)
    response = await client.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "draining")
    await assert_unavailable(client, "engine_draining")
    draining = asyncio.create_task(engine.drain(timeout_s=5))
    core.answer(core.requests[0])
    assert await draining
    assert (await asking).status_code == 200


async def test_probes_of_life_readiness_and_start(loading_engine, core):
    """What kubelets ask: is there hope, may requests come, is the start over?"""

    async def probe(client: httpx.AsyncClient) -> list[int]:
        return [(await client.get(path)).status_code for path in ("/livez", "/readyz", "/startupz")]

    async with client_of(create_app(loading_engine)) as client:
        assert await probe(client) == [200, 503, 503]
        assert (await client.get("/startupz")).json()["phase"] == "starting the engine process"
        core.become_ready()
        await loading_engine.wait_until_ready()
        assert await probe(client) == [200, 200, 200]
        await loading_engine.drain(timeout_s=1)
        assert await probe(client) == [200, 503, 200]
        core.kill()
        await loading_engine.wait_until_dead()
        assert await probe(client) == [503, 503, 200]


async def test_models(client):
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["tiny", "org/alias"]
    for model in listed["data"]:
        assert isinstance(model.pop("created"), int)
        assert model == {
            "id": model["id"],
            "object": "model",
            "owned_by": "octavo",
            "root": "tiny",
            "parent": None,
            "max_model_len": MAX_MODEL_LEN,
        }
    assert (await client.get("/v1/models/org/alias")).json()["id"] == "org/alias"
    assert (await client.get("/v1/models/org%2Falias")).json()["id"] == "org/alias"
    response = await client.get("/v1/models/gpt-99")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1//models", "//v1/models", "/v1/models/", "/models//"])
async def test_paths(client, path):
    assert (await client.get(path)).json()["object"] == "list"


async def test_paths_of_posts(client):
    for path in ("/chat/completions", "/v1//chat/completions", "/v1/chat/completions/"):
        assert (await client.post(path, json=CHAT[1])).status_code == 200


async def test_browsers_may_ask(client):
    headers = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    headers["access-control-request-headers"] = "authorization, x-stainless-lang"
    response = await client.options(CHAT[0], headers=headers)
    assert response.status_code == 200
    assert "x-stainless-lang" in response.headers["access-control-allow-headers"]
    response = await client.post(CHAT[0], json=CHAT[1], headers={"origin": "http://localhost:3000"})
    assert response.headers["access-control-allow-origin"] == "*"
