"""Batches: requests in a file become answers in a file, by the endpoints that HTTP has (OpenAI's batch format).

The output file is all the state there is: a batch that was broken off goes on from it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple
from uuid import uuid4

import msgspec
from starlette.types import ASGIApp, Message

from octavo.server.errors import MAX_MESSAGE_CHARS, shorten


class BatchRequest(msgspec.Struct, frozen=True):
    """One line of the input."""

    custom_id: str
    url: str  # as the server has it: /v1/chat/completions
    body: dict[str, Any]
    method: Literal["POST"] = "POST"


class BatchResponse(msgspec.Struct, frozen=True):
    """What the endpoint answered, which may be an error of its own."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class BatchError(msgspec.Struct, frozen=True):
    """Why a line of the input reached no endpoint."""

    code: str
    message: str
    line: int  # from 1


class BatchResult(msgspec.Struct, frozen=True):
    """One line of the output: a response or an error."""

    id: str
    custom_id: str | None
    response: BatchResponse | None
    error: BatchError | None

    @property
    def is_final(self) -> bool:
        """Whether asking again would bring nothing else."""
        return self.custom_id is not None and self.response is not None and self.response.status_code < 500

    @property
    def is_success(self) -> bool:
        """Whether the request was answered with what it asked for."""
        return self.response is not None and self.response.status_code == 200


class BatchCounts(NamedTuple):
    """How a batch went, in lines of the input."""

    num_answered_before: int
    num_succeeded: int
    num_failed: int


class Batch:
    """Asks `app` the requests of a file, `max_in_flight` at once.

    `check_alive` raises what ends the batch. It is called before a result is written, lest the refusals of an engine
    that has died fill the output.
    """

    def __init__(self, app: ASGIApp, *, max_in_flight: int, check_alive: Callable[[], None]) -> None:
        self._app = app
        self._max_in_flight = max_in_flight
        self._check_alive = check_alive
        self._num_answered_before = self._num_succeeded = self._num_failed = 0

    async def run(self, input_path: Path, output_path: Path, answered_ids: set[str]) -> BatchCounts:
        """Append to the output an answer for each line of the input whose custom_id is not answered yet.

        `answered_ids` are what `mend_output` found. Raises OSError, and whatever `check_alive` raises.
        """
        with input_path.open("rb") as source, output_path.open("ab") as output:
            items = self._open_items(source, answered_ids)
            workers = [asyncio.create_task(self._work(items, output)) for _ in range(self._max_in_flight)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        return BatchCounts(self._num_answered_before, self._num_succeeded, self._num_failed)

    def _open_items(self, source: BinaryIO, answered_ids: set[str]) -> Iterator[BatchRequest | BatchResult]:
        """What is still to do: requests, and errors for the lines that are none."""
        seen_ids: set[str] = set()
        for number, line in enumerate(source, start=1):
            if not line.strip():
                continue
            try:
                request = _read_request(line)
                if request.custom_id in seen_ids:
                    raise ValueError("custom_id is that of a line before; each needs its own")
            except (ValueError, RecursionError) as error:
                message = shorten(f"line {number}: {error or 'it is nested too deeply'}", MAX_MESSAGE_CHARS)
                yield BatchResult(_new_id(), _custom_id(line), None, BatchError("invalid_line", message, number))
                continue
            seen_ids.add(request.custom_id)
            if request.custom_id in answered_ids:
                self._num_answered_before += 1
            else:
                yield request

    async def _work(self, items: Iterator[BatchRequest | BatchResult], output: BinaryIO) -> None:
        for item in items:  # which all workers share
            result = item if isinstance(item, BatchResult) else await self._ask(item)
            self._check_alive()
            output.write(msgspec.json.encode(result) + b"\n")
            output.flush()
            self._num_succeeded += result.is_success
            self._num_failed += not result.is_success

    async def _ask(self, request: BatchRequest) -> BatchResult:
        response = await post(self._app, request.url, msgspec.json.encode(request.body))
        return BatchResult(_new_id(), request.custom_id, response, None)


def mend_output(path: Path) -> set[str]:
    """Drop from the output what is no answer, and return the custom_ids of what is.

    Dropped are errors that asking again may mend, and the last line if it was torn when a run was broken off. Raises
    ValueError for a file that no batch has written, and leaves it as it is.
    """
    if not path.exists():
        return set()
    answered_ids: set[str] = set()
    mended = path.with_name(path.name + ".mended")
    with path.open("rb") as source, mended.open("wb") as target:
        for number, line in enumerate(source, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                result = msgspec.json.decode(line, type=BatchResult)
            except msgspec.DecodeError as error:
                mended.unlink()
                raise ValueError(
                    f"{path}: line {number} is no answer of a batch ({error}); choose another file"
                ) from None
            if result.custom_id is not None and result.is_final:
                answered_ids.add(result.custom_id)
                target.write(line)
    os.replace(mended, path)
    return answered_ids


async def post(app: ASGIApp, path: str, body: bytes) -> BatchResponse:
    """What the application answers to a POST of this JSON."""
    status, headers, chunks, is_sent = 0, {}, [], False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            await asyncio.Event().wait()  # a client that never leaves
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], dict(message["headers"])
        else:
            chunks.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {},
    }
    await app(scope, receive, send)
    return BatchResponse(status, headers[b"x-request-id"].decode(), msgspec.Raw(b"".join(chunks)))


def _read_request(line: bytes) -> BatchRequest:
    """The request in a line. Raises ValueError or RecursionError."""
    request = msgspec.json.decode(line, type=BatchRequest)
    if request.body.get("stream"):
        raise ValueError("a batch has no streams; leave stream out of the body")
    return request


def _custom_id(line: bytes) -> str | None:
    """The custom_id of a line that is no request, if it has one."""
    try:
        custom_id = msgspec.json.decode(line)["custom_id"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return custom_id if isinstance(custom_id, str) else None


def _new_id() -> str:
    return f"batch_req_{uuid4().hex}"
