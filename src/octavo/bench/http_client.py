"""HTTP as a load generator needs it: a request on a connection of its own, and the answer piece by piece as it comes.

A general client pools, retries and decodes, all of which would take time on the CPUs that the measured server needs,
and would hide what a user of that server sees.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec

READ_BYTES = 1 << 16
MAX_ERROR_CHARS = 300
FIRST_ERROR_STATUS = 400
RETRY_AFTER = b"retry-after"


class HttpError(Exception):
    """The server refused, or broke off. The message says what it said."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal  # the server has too much to do, and said when to come back


class Server(NamedTuple):
    """Where to send requests."""

    host: str
    port: int
    is_tls: bool
    path: str  # before every route, without a slash at its end
    headers: Mapping[str, str]  # of every request

    @classmethod
    def parse(cls, base_url: str, headers: Mapping[str, str] | None = None) -> Server:
        """The server at a URL such as http://127.0.0.1:8000 or https://host/v1. Raises ValueError for anything else."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the base URL is {base_url!r}; it must look like http://127.0.0.1:8000")
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        return cls(parts.hostname, port, is_tls, parts.path.rstrip("/").removesuffix("/v1"), headers or {})

    async def get(self, path: str) -> bytes:
        """What GET of `path` answers. Raises HttpError and OSError."""
        return await _joined(self.request("GET", path))

    async def get_json(self, path: str) -> Any:
        """What GET of `path` answers. Raises HttpError and OSError."""
        return msgspec.json.decode(await self.get(path))

    async def post_json(self, path: str, body: Any) -> Any:
        """What POST of `body` answers. Raises HttpError and OSError."""
        return msgspec.json.decode(await _joined(self.request("POST", path, msgspec.json.encode(body))))

    async def request(self, method: str, path: str, body: bytes = b"") -> AsyncGenerator[bytes, None]:
        """The pieces of the answer's body as they arrive. Raises HttpError for an error status, and OSError."""
        context = ssl.create_default_context() if self.is_tls else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context)
        try:
            writer.write(self._head(method, path, len(body)) + body)
            answer = _Answer()
            error_body = b""
            while not answer.is_complete:
                data = await reader.read(READ_BYTES)
                if not data:
                    raise HttpError("the server closed the connection in the middle of its answer")
                for piece in answer.feed(data):
                    if answer.status < FIRST_ERROR_STATUS:
                        yield piece
                    else:
                        error_body += piece
            if answer.status >= FIRST_ERROR_STATUS:
                message = f"status {answer.status}: {error_body.decode(errors='replace')[:MAX_ERROR_CHARS]}"
                raise HttpError(message, is_refusal=answer.has_retry_after)
        finally:
            writer.close()

    def _head(self, method: str, path: str, num_bytes: int) -> bytes:
        headers = {
            "Host": f"{self.host}:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(num_bytes),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"{method} {self.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()


async def events(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The data of each server-sent event, without `[DONE]`."""
    rest = b""
    async with aclosing(pieces):
        async for piece in pieces:
            *blocks, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
            for block in blocks:
                data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
                if data and data != b"[DONE]":
                    yield data


class _Answer:
    """Takes an HTTP answer apart. The methods named `on_...` are the parser's."""

    def __init__(self) -> None:
        self.is_complete = False
        self.has_retry_after = False
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        status: int = self._parser.get_status_code()
        return status

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body that `data` holds."""
        self._pieces = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise HttpError(f"the server's answer is not HTTP: {error}") from error
        return self._pieces

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == RETRY_AFTER:
            self.has_retry_after = bool(value)

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _joined(pieces: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(pieces):
        return b"".join([piece async for piece in pieces])
