"""One exchange over a socket of its own, byte for byte as the test wants it, and what may be said in return."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any, NoReturn

TIMEOUT_S = 30.0  # a server that has not answered by then hangs


@dataclass(frozen=True)
class Exchange:
    """What is sent. `leaves_after`: bytes after which the client is gone; None: it stays to the end."""

    method: bytes
    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    has_length: bool = True  # else the body comes in one chunk
    leaves_after: int | None = None

    def encode(self) -> bytes:
        """The request on the wire."""
        framing = (b"content-length", b"%d" % len(self.body)) if self.has_length else (b"transfer-encoding", b"chunked")
        lines = [b"%s %s HTTP/1.1" % (self.method, self.path)]
        lines += [b"%s: %s" % header for header in [*self.headers, framing]]
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(self.body), self.body) if self.body else b"0\r\n\r\n"
        return b"\r\n".join(lines) + b"\r\n\r\n" + (self.body if self.has_length else chunks)


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes | None  # None: that of a HEAD


def send(address: tuple[str, int], exchange: Exchange) -> Reply | None:
    """The reply; None if the client left, or if the server closed the connection without one."""
    data = exchange.encode()
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        if exchange.leaves_after is not None:
            connection.sendall(data[: exchange.leaves_after])
            return None
        try:
            connection.sendall(data)
            return _read_reply(connection, has_body=exchange.method != b"HEAD")
        except (BrokenPipeError, ConnectionResetError):
            return None


def check(reply: Reply) -> None:
    """Fail unless it is a right answer, or an error that says what is wrong, in one line of valid JSON."""
    assert reply.status < 500 or _is_over(reply), reply
    if reply.body is None:
        return
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        assert reply.status == 200
        _check_events(reply.body)
    elif reply.headers.get("content-type") == "application/json":
        value = _strict_json(reply.body)
        if reply.status >= 400:
            _check_error(value)
    else:  # uvicorn's own answer to what is no HTTP; a preflight; a probe; a page
        assert reply.status in (200, 400), reply


def _is_over(reply: Reply) -> bool:
    """Whether it was the request's own time that ended; no other 503 is right while the engine is there."""
    return reply.status == 503 and b'"code":"timeout"' in (reply.body or b"")


def _check_events(body: bytes) -> None:
    *events, rest = body.split(b"\n\n")
    assert rest == b"", body
    assert all(event.startswith((b"data: ", b"event: ", b": ")) for event in events)
    for event in events:
        data = event.rpartition(b"data: ")[2]
        if data != b"[DONE]" and not event.startswith(b":"):
            value = _strict_json(data)
            if error := value.get("error"):  # what the request rules out is known only when nothing is left
                assert error["type"] == "invalid_request_error", value


def _check_error(value: dict[str, Any]) -> None:
    error = value["error"]
    message = error["message"]
    assert isinstance(message, str) and 0 < len(message) <= 1100 and "\n" not in message, message
    if "request_id" in value:
        assert value["type"] == "error" and isinstance(error["type"], str)
    else:
        assert error.keys() == {"message", "type", "param", "code"}
        assert isinstance(error["code"], str) and isinstance(error["type"], str)
        assert error["param"] is None or isinstance(error["param"], str)


def _strict_json(data: bytes) -> Any:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is not JSON: {data[:200]!r}")

    return json.loads(data.decode(), parse_constant=refuse)


def _read_reply(connection: socket.socket, *, has_body: bool) -> Reply | None:
    with connection.makefile("rb") as file:
        while True:
            line = file.readline()
            if not line:
                return None
            status = int(line.split()[1])
            headers: dict[str, str] = {}
            while (line := file.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                headers[name.decode().lower()] = value.strip().decode("latin-1")
            if status != 100:
                break
        return Reply(status, headers, _read_body(file, headers) if has_body else None)


def _read_body(file: Any, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return file.read(int(headers["content-length"]))
    if headers.get("transfer-encoding") != "chunked":
        return file.read()
    body = b""
    while size := int(file.readline(), 16):
        body += file.read(size)
        file.readline()
    file.readline()
    return body
