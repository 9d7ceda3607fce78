"""From the bytes of a request to a typed body: bounded, strict, and with one short message for each mistake."""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from octavo.server.errors import ApiError, invalid
from octavo.server.serving import serving_of

# What becomes millions of Python objects holds up everybody for seconds. It is refused by its punctuation: there is no
# context that could take a text with as many of these characters.
MAX_COUNT_BY_CHARACTERS = {b"[{:": 200_000, b",": 2_000_000}

BODY_TIMEOUT_S = 20.0  # for a body to arrive, and as much more as it takes at this rate:
MIN_BODY_BYTES_PER_S = 10_000

Kind = TypeVar("Kind")


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in the request's body, its null fields left out: null means the same as absence."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise invalid(None, f"Content-Type is {media_type!r}; send application/json", "invalid_content_type")
    body = await _read_bytes(request)
    _check_structure(body)
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise invalid(None, "the body is nested too deeply", "invalid_json") from None
    except msgspec.DecodeError as error:
        raise invalid(None, f"the body is not valid JSON: {error}", "invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(None, f"the body is a JSON {type(value).__name__}; send an object", "invalid_json")
    return {name: field for name, field in value.items() if field is not None}


def convert(value: Any, kind: type[Kind], param: str = "") -> Kind:
    """The value as a `kind`; fields that `kind` does not have are ignored, as clients send many.

    Raises the error for one that is no such thing, blaming its part; `param` is where the value stands in the body.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.max_tokens`" or "Object missing required field `messages`".
        message, _, path = str(error).partition(" - at `$")
        param = f"{param}{path.strip('`')}".lstrip(".")
        if missing := re.search(r"missing required field `(\w+)`", message):
            param = f"{param}.{missing[1]}".lstrip(".")
        raise invalid(param or None, f"{param or 'the body'}: {message}") from None


async def _read_bytes(request: Request) -> bytes:
    max_bytes = serving_of(request).config.max_body_bytes
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        message = f"Content-Encoding is {encoding!r}; send gzip, deflate or no encoding"
        raise ApiError(415, "unsupported_content_encoding", message)
    announced = request.headers.get("content-length", "")
    if announced.isdigit():
        _check_length(int(announced), max_bytes)
    body = bytearray()
    started_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S) as patience:
            async for chunk in request.stream():
                body += chunk
                _check_length(len(body), max_bytes)
                patience.reschedule(started_s + BODY_TIMEOUT_S + len(body) / MIN_BODY_BYTES_PER_S)
    except TimeoutError:
        message = f"{len(body)} bytes of the body have come, and no more for long; send it in one go"
        raise ApiError(408, "request_timeout", message) from None
    return bytes(body) if encoding == "identity" else _decompress(body, max_bytes)


def _decompress(body: bytearray, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # which finds out whether it is gzip
    try:
        data = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise invalid(None, f"the body cannot be decompressed: {error}", "invalid_content_encoding") from None
    _check_length(len(data), max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise invalid(None, "the compressed body is cut off, or goes on after its end", "invalid_content_encoding")
    return data


def _check_length(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        message = f"the body has {num_bytes} bytes or more; --max-body-bytes allows {max_bytes}"
        raise ApiError(413, "request_too_large", message)


def _check_structure(body: bytes) -> None:
    for characters, limit in MAX_COUNT_BY_CHARACTERS.items():
        count = sum(map(body.count, characters))
        if count > limit:
            message = f"the body holds {count} of the characters {characters.decode()}; at most {limit} are allowed"
            raise ApiError(413, "request_too_large", message)
