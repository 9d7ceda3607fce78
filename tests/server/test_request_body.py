"""What a body may be: how large, and how it is compressed; and the id that a request brings."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib

import pytest

from octavo.server.app import create_app
from octavo.server.server_config import ServerConfig
from tests.server.conftest import client_of
from tests.server.test_errors import error_of

pytestmark = pytest.mark.anyio

URL = "/v1/completions"
BODY = json.dumps({"prompt": "Hi"}).encode()
MAX_BYTES = 4096


@pytest.fixture
async def client(engine):
    async with client_of(create_app(engine, ServerConfig(max_body_bytes=MAX_BYTES))) as client:
        yield client


async def post(client, content, encoding):
    headers = {"content-type": "application/json"} | ({"content-encoding": encoding} if encoding else {})
    return await client.post(URL, content=content, headers=headers)


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [(None, bytes), ("identity", bytes), ("gzip", gzip.compress), (" GZIP", gzip.compress), ("deflate", zlib.compress)],
)
async def test_a_body_up_to_the_limit(client, encoding, compress):
    assert (await post(client, compress(BODY.ljust(MAX_BYTES)), encoding)).status_code == 200
    response = await post(client, compress(BODY.ljust(MAX_BYTES + 1)), encoding)
    assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
    assert "--max-body-bytes" in error_of(response)["message"]


@pytest.mark.parametrize(
    "content",
    [BODY, b"", gzip.compress(BODY)[:-1], gzip.compress(BODY) + b"x", gzip.compress(BODY) * 2, raw_deflate(BODY)],
)
async def test_a_body_that_is_not_gzip(client, core, content):
    response = await post(client, content, "gzip")
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_content_encoding")
    assert not core.requests


@pytest.mark.parametrize("item", [b"[]", b'{"a":1}', b'"::::x"', b"5"])
async def test_a_body_that_would_be_millions_of_objects(engine, core, item):
    async with client_of(create_app(engine)) as client:
        body = b'{"prompt": [' + b",".join([item] * 2_000_002) + b"]}"
        response = await post(client, body, None)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
        assert not core.requests


async def test_a_bomb_does_not_go_off(client):
    bomb = gzip.compress(gzip.compress(b" " * (1 << 26)))  # fits in the limit twice over, and holds 64 MiB
    assert len(bomb) < MAX_BYTES
    response = await post(client, gzip.compress(b" " * (1 << 21)), "gzip")
    assert response.status_code == 413
    assert (await post(client, bomb, "gzip")).status_code == 413
    assert (await post(client, bomb, "gzip, gzip")).status_code == 415


@pytest.mark.parametrize("encoding", ["zstd", "br", "gzip, gzip", "x", "é"])
async def test_an_encoding_that_is_not_read(client, core, encoding):
    response = await post(client, BODY, encoding.encode())
    assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_content_encoding")
    assert not core.requests


@pytest.mark.parametrize("sent", ["mine", "a b~!", "x" * 200])
async def test_an_id_is_echoed(client, sent):
    response = await client.post(URL, json={"prompt": "Hi"}, headers={"x-request-id": sent})
    assert response.headers["x-request-id"] == response.headers["request-id"] == sent


@pytest.mark.parametrize("sent", [b"", b"\xc3\xa9", b"a\x1b[31mb", b"\x7f", b"a\tb", b"\xff" * 10])
async def test_a28_an_id_that_a_log_cannot_show_is_replaced(client, sent):
    for path in (URL, "/v1/nothing", "/health"):
        response = await client.post(path, json={"prompt": "Hi"}, headers={"x-request-id": sent})
        assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


async def test_a28_the_same_id_ten_times_at_once(client, core):
    core.is_holding = True

    async def ask(i: int) -> None:
        body = {"prompt": f"Request {i}", "request_id": "mine", "user": "mine"}
        response = await client.post(URL, json=body, headers={"x-request-id": "mine"})
        assert response.headers["x-request-id"] == "mine"
        assert response.json()["id"] != "mine"

    asking = [asyncio.create_task(ask(i)) for i in range(10)]
    while len(core.requests) < 10:
        await asyncio.sleep(0.001)
    assert len({request.request_id for request in core.requests}) == 10
    asking[0].cancel()
    await asyncio.sleep(0.01)
    asking[0] = asyncio.create_task(ask(0))  # the id again, right after an abort
    while len(core.requests) < 11:
        await asyncio.sleep(0.001)
    for request in core.requests[1:]:
        core.answer(request)
    await asyncio.gather(*asking)
