"""Clients that send the half of a request, and wait: a server does not wait for them for long."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvicorn

from octavo.server import http_protocol, request_body
from octavo.server.http_protocol import BoundedHttp

pytestmark = pytest.mark.anyio

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n"
PATIENCE_S = 0.2


class Connection:
    """One to a server that listens in this very process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def dribble(self, data: bytes) -> bytes:
        """Send these bytes, then one more again and again; what came until the server closed the connection."""
        answer = bytearray()

        async def receive() -> None:
            with suppress(ConnectionResetError):  # how a closed connection answers to the next byte
                while piece := await self._reader.read(1 << 16):
                    answer.extend(piece)

        self._writer.write(data)
        receiver = asyncio.create_task(receive())
        while not receiver.done():
            self._writer.write(b"x")
            await asyncio.sleep(PATIENCE_S / 10)
        await receiver
        return bytes(answer)


@pytest.fixture
async def connection(app, monkeypatch) -> AsyncIterator[Connection]:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(request_body, "BODY_TIMEOUT_S", PATIENCE_S)
    config = uvicorn.Config(app, http=BoundedHttp, ws="none", lifespan="off", port=0, log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    address = server.servers[0].sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address)
    yield Connection(reader, writer)
    writer.close()
    server.should_exit = True
    await task


async def test_half_a_head(connection):
    assert await connection.dribble(HEAD) == b""


async def test_nothing_at_all(connection):
    assert await asyncio.wait_for(connection._reader.read(), 10) == b""


async def test_half_a_body(connection):
    answer = await connection.dribble(HEAD + b"\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"


async def test_the_rest_of_a_body_that_was_refused(connection, monkeypatch):
    head = HEAD.replace(b"1000", b"99999999999")
    assert (await connection.dribble(head + b"\r\n")).startswith(b"HTTP/1.1 413 ")


async def test_a_slow_body_that_comes_steadily_is_taken(connection):
    body = json.dumps({"prompt": "Hi", "user": "u" * 20_000}).encode()
    head = HEAD.replace(b"1000", b"%d" % len(body)).replace(b"host", b"connection: close\r\nhost")
    started_s = time.monotonic()
    connection._writer.write(head + b"\r\n")
    for start in range(0, len(body), 2000):
        connection._writer.write(body[start : start + 2000])
        await asyncio.sleep(PATIENCE_S / 5)
    assert time.monotonic() - started_s > PATIENCE_S
    assert (await connection._reader.read()).startswith(b"HTTP/1.1 200 ")
