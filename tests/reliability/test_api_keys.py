"""Cases A39 and A40 of the reliability list: who may ask, and whose prefixes he may find."""

from __future__ import annotations

import hmac
import random
from typing import Any

import pytest

from octavo.server import api_keys
from octavo.server.app import create_app
from octavo.server.routes import ENDPOINTS
from octavo.server.server_config import ServerConfig
from tests.reliability.bodies import CHAT, COMPLETIONS, post
from tests.server.conftest import client_of

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = "sk-first-0123456789", "sk-sécond"
OPEN_PATHS = ("/", "/v1", "/health", "/ping", "/readyz", "/livez", "/startupz", "/version", "/metrics", "/dashboard")


def bearer(key: str) -> dict[str, bytes]:
    return {"authorization": b"Bearer " + key.encode()}


@pytest.fixture
async def guarded(engine):
    app = create_app(engine, ServerConfig(model_names=("tiny",), api_keys=(KEY, OTHER_KEY)))
    async with client_of(app) as client:
        yield client


def paths() -> list[str]:
    named = [endpoint.path.replace("{model_id:path}", "tiny") for endpoint in ENDPOINTS]
    return [path for path in named if path not in OPEN_PATHS]


def spellings(path: str) -> list[str]:
    """Ways to write a path that a guard and a router might read differently."""
    bare = path.removeprefix("/v1")
    before = ["/v1/", "//v1", "/health", "/health/..", "/health/%2e%2e", "/health%2f.."]
    after = ["/", "//", ".", "%20", "%00", ";x=/health", "?/health", "%3f/health", "%23/health"]
    return [
        path,
        path.upper(),
        path.replace("/", "%2f"),
        *(start + bare for start in before),
        *(path + end for end in after),
    ]


async def test_a39_nothing_is_served_without_a_key(guarded, core):
    for path in [*paths(), "/nothing", "/metrics/x", "/health/x", "/Health"]:
        for spelling in spellings(path):
            for method in ("GET", "POST", "OPTIONS", "HEALTH"):
                response = await guarded.request(method, spelling, json={})
                assert response.status_code == 401, (method, spelling)
                assert response.headers["www-authenticate"] == "Bearer"
    assert not core.requests


HOSTS = [b"x/health", b"x?/health", b"x#/health", b"u@health", b"a b", b"", b"[", b"x:99999", b"/health?", b"\xff"]


@pytest.mark.parametrize("host", HOSTS)
async def test_a39_the_host_is_not_looked_at(guarded, host):
    for path in (CHAT, "/v1/models", "/nothing"):
        for headers in ({"host": host}, {"host": host, "x-forwarded-prefix": b"/health", "x-original-url": b"/health"}):
            assert (await guarded.get(path, headers=headers)).status_code == 401
            right = await guarded.get(path, headers=headers | bearer(KEY))
            assert right.status_code in (200, 404, 405), right.text


async def test_a39_a_target_that_is_a_whole_url(guarded):
    for url in ("http://octavo/v1/models?/health", "http://health/v1/models", "http://u:p@octavo/v1/models"):
        headers = {"authorization": b""}  # or the client would make one of u:p
        assert (await guarded.get(url, headers=headers)).status_code == 401


async def test_a39_the_open_paths(guarded):
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.is_open} == {*OPEN_PATHS} - {"/v1"}
    for path in OPEN_PATHS:
        for method in ("GET", "HEAD"):
            assert (await guarded.request(method, path)).status_code == 200


RIGHT_HEADERS: list[Any] = [
    bearer(KEY),
    bearer(OTHER_KEY),
    {"authorization": b"bearer " + KEY.encode()},
    {"authorization": b"BEARER   " + KEY.encode()},
    {"x-api-key": KEY.encode()},
    {"x-api-key": OTHER_KEY.encode()},
    {"x-api-key": b"wrong", **bearer(KEY)},
    {"x-api-key": KEY.encode(), "authorization": b"Bearer wrong"},
]
WRONG_HEADERS: list[Any] = [
    {},
    bearer(""),
    bearer(KEY[:-1]),
    bearer(KEY + "x"),
    bearer(KEY.upper()),
    bearer(f"{KEY},{OTHER_KEY}"),
    {"authorization": KEY.encode()},
    {"authorization": b"Basic " + KEY.encode()},
    {"authorization": b"Bearer"},
    {"authorization": b"\xff\xfe"},
    {"x-api-key": b""},
    {"x-api-key": b"Bearer " + KEY.encode()},
    {"api-key": KEY.encode()},
    {"cookie": b"api_key=" + KEY.encode()},
]


@pytest.mark.parametrize("headers", RIGHT_HEADERS)
async def test_a39_a_right_key(guarded, headers):
    assert (await guarded.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", WRONG_HEADERS)
async def test_a39_a_wrong_key(guarded, headers):
    response = await guarded.get("/v1/models", headers=headers)
    assert response.status_code == 401
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)
    response = await guarded.post("/v1/messages", headers=headers, json={})
    assert response.status_code == 401
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a39_every_key_is_compared_whole_whatever_was_sent(guarded, monkeypatch):
    """No time can tell how much of a key is right: digests are compared, every one, by what takes constant time."""
    compared = []

    def compare(known: bytes, sent: bytes) -> bool:
        compared.append((known, sent))
        return hmac.compare_digest(known, sent)

    monkeypatch.setattr(
        api_keys, "hmac", type("", (), {"compare_digest": staticmethod(compare), "digest": hmac.digest})
    )
    for sent in (KEY, OTHER_KEY, KEY[:-1] + "x", "x" * len(KEY)):
        compared.clear()
        await guarded.get("/v1/models", headers=bearer(sent))
        assert len(compared) == 2  # as many as there are keys, also after a match
        assert all(len(known) == len(digest) == 64 for known, digest in compared)
        assert not any(KEY.encode() in digest for pair in compared for digest in pair)


async def test_a39_a_browser_may_ask_whether_it_may_ask(engine):
    origin = {"origin": "https://good.example", "access-control-request-method": "POST"}
    config = ServerConfig(api_keys=(KEY,), allowed_origins=("https://good.example",))
    async with client_of(create_app(engine, config)) as client:
        response = await client.options(CHAT, headers=origin | {"access-control-request-headers": "authorization"})
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://good.example"
        assert (await client.options(CHAT, headers=origin | {"origin": "https://bad.example"})).status_code == 400
        response = await client.get("/v1/models", headers={"origin": "https://bad.example", "x-api-key": KEY})
        assert "access-control-allow-origin" not in response.headers


SALTED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    COMPLETIONS: {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
}


async def salts(client, core, headers: dict[str, bytes], cache_salt: str) -> set[str]:
    """The salts under which the engine gets what is sent with this key and this salt, whatever the endpoint."""
    core.sent.clear()
    for path, body in SALTED.items():
        for stream in (False, True):
            fields = {"cache_salt": cache_salt, "stream": stream}
            assert (await client.post(path, json=body | fields, headers=headers)).status_code == 200
    return {request.cache_salt for request in core.requests}


async def test_a40_the_salt_is_the_keys(guarded, core):
    seen = {}
    for key in (KEY, OTHER_KEY):
        for cache_salt in ("", "mine", KEY, OTHER_KEY):
            [seen[key, cache_salt]] = await salts(guarded, core, bearer(key), cache_salt)
    assert len(set(seen.values())) == len(seen)  # nobody comes to another's salt by choosing his own
    assert not any(KEY in salt or OTHER_KEY in salt for salt in seen.values())
    assert await salts(guarded, core, {"x-api-key": KEY.encode()}, "mine") == {seen[KEY, "mine"]}
    for chosen in random.Random(40).sample(sorted(seen.values()), 4):
        assert not await salts(guarded, core, bearer(KEY), chosen) & set(seen.values())


async def test_a40_an_endpoint_without_salts_salts_by_the_key_alone(guarded, core):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    for headers in (bearer(KEY), bearer(OTHER_KEY)):
        assert (await guarded.post("/v1/messages", json=body, headers=headers)).status_code == 200
    first, second = (request.cache_salt for request in core.requests)
    assert len({"", first, second}) == 3
    assert await salts(guarded, core, bearer(KEY), "") == {first}


async def test_a40_without_keys_the_client_salts(client, core):
    assert await salts(client, core, {}, "mine") == {"mine"}
    assert await salts(client, core, {}, "") == {""}
    bad_salts: list[Any] = ["x" * (1 << 20), 5, ["a"], {"a": 1}, True]
    for bad in bad_salts:
        for path in (CHAT, COMPLETIONS):
            response = await post(client, path, {"cache_salt": bad})
            assert (response.status_code, response.json()["error"]["param"]) == (400, "cache_salt")


def test_a_key_that_is_none():
    with pytest.raises(ValueError, match="empty"):
        ServerConfig(api_keys=("",))
