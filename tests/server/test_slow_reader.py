"""A client that opens a stream and takes nothing from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest
from starlette.requests import ClientDisconnect

from octavo.server import sse
from octavo.server.sse import EventStream

pytestmark = pytest.mark.anyio


class Chunk(msgspec.Struct):
    text: str


async def chunks() -> AsyncGenerator[Chunk, None]:
    for letter in "abc":
        yield Chunk(letter)


async def test_it_is_cut_off_and_its_generation_ended(monkeypatch, caplog):
    monkeypatch.setattr(sse, "SLOW_READER_TIMEOUT_S", 0.02)
    closed = []
    num_sent = 0

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        nonlocal num_sent
        num_sent += 1
        if num_sent == 2:  # the headers went through, and now the connection's buffers are full
            await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        await EventStream(chunks(), lambda: closed.append(True))({"type": "http"}, receive, send)
    assert closed == [True] and num_sent == 2
    assert "read nothing" in caplog.text
