"""The client against a server that sends bytes as it likes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from octavo.bench.completion_client import CompletionClient
from octavo.bench.http_client import HttpError, Server
from octavo.bench.load import run_load
from octavo.bench.outcome import Outcome
from octavo.bench.workload import LoadRequest

pytestmark = pytest.mark.anyio

STREAM = (
    b'data: {"choices": [{"text": "a"}]}\r\n\r\n: keep-alive\n\n'
    b'data: {"choices": [{"text": ""}]}\n\ndata: {"choices": [{"text": "b"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, '
    b'"prompt_tokens_details": {"cached_tokens": 4}}}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    frames = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + frames


class Listener:
    """Answers every request with the same bytes, `size` at a time, and remembers the requests."""

    def __init__(self, answer: bytes, size: int = 1 << 16, num_together: int = 1) -> None:
        self.requests: list[bytes] = []
        self.most_at_once = self._num_at_once = 0
        self._answer, self._size = answer, size
        self._together = asyncio.Barrier(num_together)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        self._num_at_once += 1
        self.most_at_once = max(self.most_at_once, self._num_at_once)
        await self._together.wait()
        for start in range(0, len(self._answer), self._size):
            writer.write(self._answer[start : start + self._size])
            await writer.drain()
        self._num_at_once -= 1
        writer.close()


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[Server]:
    server = await asyncio.start_server(listener.serve, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Server.parse(f"http://127.0.0.1:{port}/v1/", {"Authorization": "Bearer k"})


def client_of(server: Server, endpoint: str = "completions") -> CompletionClient:
    return CompletionClient(server, "m", endpoint=endpoint, ignore_eos=True)


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
async def test_a_stream_is_understood_however_it_is_cut(size):
    listener = Listener(chunked(STREAM, size) + b"0\r\n\r\n", size)
    async with listening(listener) as server:
        outcome = await client_of(server).run(LoadRequest(0, "hello", 5), start_s=0)
    assert outcome.error == ""
    assert (outcome.num_prompt_tokens, outcome.num_output_tokens, outcome.num_cached_tokens) == (7, 5, 4)
    assert len(outcome.chunk_s) == 2  # the empty text is none
    [request] = listener.requests
    assert request.startswith(b"POST /v1/completions HTTP/1.1\r\n") and b"\r\nAuthorization: Bearer k\r\n" in request
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    assert body["prompt"] == "hello" and body["max_tokens"] == 5 and body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b'HTTP/1.1 503 Busy\r\nContent-Length: 8\r\n\r\n{"a": 1}', 'status 503: {"a": 1}'),
        (chunked(STREAM, 9), "closed the connection in the middle"),
        (chunked(b'data: {"error": {"message": "broken"}}\n\n', 9) + b"0\r\n\r\n", "broken"),
        (chunked(b"data: [DONE]\n\n", 9) + b"0\r\n\r\n", "no text"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
    ],
)
async def test_a_failure_is_an_outcome(answer, error):
    async with listening(Listener(answer)) as server:
        outcome = await client_of(server, "chat").run(LoadRequest(0, "hello", 5), start_s=0)
    assert error in outcome.error


async def test_nobody_listening_is_an_outcome_too():
    async with listening(Listener(b"")) as server:
        pass
    outcome = await client_of(server).run(LoadRequest(0, "hello", 5), start_s=0)
    assert "OSError" in outcome.error or "Refused" in outcome.error


async def test_a_closed_loop_has_so_many_under_way_and_an_open_loop_all():
    requests = [LoadRequest(0, str(index), 1) for index in range(6)]
    answer = chunked(STREAM, 50) + b"0\r\n\r\n"
    for max_concurrency, expected in ((2, 2), (None, 6)):
        listener = Listener(answer, num_together=expected)  # answers none before so many are there
        async with listening(listener) as server:
            ended: list[Outcome] = []
            outcomes = await run_load(client_of(server), requests, max_concurrency=max_concurrency, on_end=ended.append)
        assert listener.most_at_once == expected
        assert len(outcomes) == len(ended) == 6 and not any(outcome.error for outcome in outcomes)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://"])
def test_other_urls_are_refused(url):
    with pytest.raises(ValueError, match="it must look like"):
        Server.parse(url)


async def test_an_error_status_of_a_question_is_raised():
    async with listening(Listener(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno")) as server:
        with pytest.raises(HttpError, match="status 404: no"):
            await server.post_json("/v1/nothing", {})
