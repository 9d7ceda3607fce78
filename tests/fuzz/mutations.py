"""Bytes, nearly right: what a broken client, a broken proxy or somebody with time sends."""

from __future__ import annotations

import random

FRAGMENTS = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-1e-999",
    b"9" * 400,
    b"[" * 2000,
    b'{"a":' * 1200,
    b"]" * 30,
    b'"\\ud800"',
    b"\\u0000",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'""',
    b'"',
    b",",
    b":",
    b"/*x*/",
    b" " * 5000,
    b"'x'",
    b"0x10",
    b"01",
    b"1.",
    b"-",
]
HEADERS = {
    b"content-type": [
        b"application/json",
        b"text/plain",
        b"",
        b"application/json; charset=utf-16",
        b"\xff",
        b"a" * 9000,
    ],
    b"content-encoding": [b"gzip", b"zstd", b"identity", b"deflate, gzip", b""],
    b"x-request-id": [b"", b"\x1b[0m", b"\xff" * 300, b"a" * 5000, b"{{x}}"],
    b"authorization": [b"Bearer", b"Bearer \xff", b"Basic eDp5", b""],
    b"accept": [b"", b"text/event-stream", b"*/*;q=nan"],
    b"host": [b"", b"a b", b"x/y?z#", b"[::1", b"\xff"],
    b"origin": [b"null", b"http://x", b"\xff"],
    b"expect": [b"100-continue", b"200-ok"],
    b"connection": [b"close", b"upgrade", b"keep-alive, x"],
    b"upgrade": [b"websocket", b"h2c"],
    b"range": [b"bytes=0-", b"x"],
    b"x-api-key": [b"k", b""],
}
PATHS = [
    b"/",
    b"//",
    b"/v1",
    b"/v1/",
    b"/nothing",
    b"/v1/models/%00",
    b"/v1/models/%ff%fe",
    b"/v1/models/" + b"a" * 3000,
    b"/v1/../v1/models",
    b"/%2e%2e/x",
    b"/v1/chat/completions?x=%zz",
    b"/v1/messages/x",
    b"/\xc3\xa9",
    b"*",
    b"http://x/health",
]
METHODS = [b"GET", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"post"]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one to four changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice((_flip, _cut, _insert, _repeat, _replace, _truncate))(rng, data)
    return data


def mutate_headers(rng: random.Random, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with one or two set, doubled or left out."""
    for _ in range(rng.choice((1, 2))):
        name, values = rng.choice(list(HEADERS.items()))
        if rng.random() < 0.3:
            headers = [header for header in headers if header[0] != name]
        else:
            headers = [*headers, (name, rng.choice(values))]
    return headers


def _span(rng: random.Random, data: bytes, max_size: int) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randrange(1, max_size))


def _flip(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data, 4)
    return data[:start] + bytes(byte ^ (1 << rng.randrange(8)) for byte in data[start:end]) + data[end:]


def _cut(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data, 20)
    return data[:start] + data[end:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    start, _ = _span(rng, data, 2)
    return data[:start] + rng.choice(FRAGMENTS) + data[start:]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data, 30)
    return data[:start] + data[start:end] * rng.choice((2, 3, 50)) + data[end:]


def _replace(rng: random.Random, data: bytes) -> bytes:
    """A value, from one colon to the next comma."""
    colons = [i for i, byte in enumerate(data) if byte == ord(":")]
    if not colons:
        return data
    start = rng.choice(colons) + 1
    end = data.find(b",", start)
    return data[:start] + rng.choice(FRAGMENTS) + (data[end:] if end >= 0 else b"}")


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]
