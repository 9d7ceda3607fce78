"""Server-sent events: a response that streams `data:` lines for as long as the client listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from octavo.server.disconnect import finish_or_disconnect
from octavo.server.errors import as_api_error

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back until its buffer is full
]
DONE = b"data: [DONE]\n\n"
# Line ends of Unicode, which are none in this format; but clients that split by Python's splitlines break at them.
ESCAPED_LINE_ENDS = [(chr(code).encode(), f"\\u{code:04x}".encode()) for code in (0x85, 0x2028, 0x2029)]
SLOW_READER_TIMEOUT_S = 60.0  # after which a client that takes nothing from full buffers is taken for gone

logger = logging.getLogger("octavo.server")


def encode_event(data: msgspec.Struct, name: str = "") -> bytes:
    """One event, always of one line: msgspec's JSON holds no raw newline, nor what only some clients take for one."""
    line = msgspec.json.encode(data)
    for character, escaped in ESCAPED_LINE_ENDS:
        if character in line:
            line = line.replace(character, escaped)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + line + b"\n\n"


class EventStream:
    """Sends each chunk as an event, at once, and `[DONE]` after the last.

    With `name_of`, events have names, the last chunk is the end, and the chunks themselves tell of errors; otherwise an
    error after the headers becomes an error event. `close` ends the generation behind the chunks; it is called however
    the stream ends, also when the client left before the first chunk.
    """

    def __init__(
        self, chunks: AsyncGenerator[Any, None], close: Callable[[], None], name_of: Callable[[Any], str] | None = None
    ) -> None:
        self._chunks = chunks
        self._close = close
        self._name_of = name_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to the client. Raises ClientDisconnect when it leaves before the end."""
        try:
            await finish_or_disconnect(receive, self._send_events(send))
        finally:
            self._close()

    async def _send_events(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SLOW_READER_TIMEOUT_S):  # `send` waits while the connection's buffers are full
                await send(message)

        try:
            await self._send_all(send_in_time)
        except TimeoutError:
            logger.warning("a stream was cut off: its client has read nothing for %d s", SLOW_READER_TIMEOUT_S)
            raise ClientDisconnect from None

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async with aclosing(self._chunks) as chunks:
            try:
                async for chunk in chunks:
                    event = encode_event(chunk, self._name_of(chunk) if self._name_of else "")
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            except TimeoutError:
                raise
            except Exception as error:
                logger.error("a stream broke off: %s: %s", type(error).__name__, error)
                event = encode_event(as_api_error(error).envelope)
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"" if self._name_of else DONE, "more_body": False})
