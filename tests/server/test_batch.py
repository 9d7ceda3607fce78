"""Batches: a file of requests in, a file of answers out, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from octavo.engine.engine_status import EngineUnavailableError
from octavo.server.batch import Batch, BatchCounts, mend_output
from tests.server.openai_schemas import assert_valid
from tests.server.scripted_core import TEXT, fails, says

pytestmark = pytest.mark.anyio

CHAT = {"url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Hi"}], "seed": 1}}
COMPLETION = {"url": "/v1/completions", "body": {"prompt": "Hi", "seed": 1}}


@pytest.fixture
def paths(tmp_path) -> tuple[Path, Path]:
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


@pytest.fixture
def run(app, engine, paths):
    async def run(*requests: dict[str, Any] | bytes, max_in_flight: int = 4) -> BatchCounts:
        lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in requests]
        paths[0].write_bytes(b"\n".join(lines) + b"\n")
        batch = Batch(app, max_in_flight=max_in_flight, check_alive=engine.check_ready)
        return await batch.run(paths[0], paths[1], mend_output(paths[1]))

    return run


def request(custom_id: str, kind: dict[str, Any] = CHAT, **fields: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": kind["url"], "body": kind["body"] | fields}


def results(path: Path) -> dict[str, dict[str, Any]]:
    lines = path.read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    by_id = {result["custom_id"]: result for result in map(json.loads, lines)}
    assert len(by_id) == len(lines)
    return by_id


async def test_each_line_is_answered_as_http_answers_it(run, client, paths):
    requests = [request("a"), request("b", COMPLETION), request("c", temperature=9), request("d", model="gpt-99")]
    assert await run(*requests, b"") == BatchCounts(0, 2, 2)
    by_id = results(paths[1])
    assert by_id.keys() == {"a", "b", "c", "d"}
    assert len({result["id"] for result in by_id.values()}) == 4
    for one in requests:
        result = by_id[one["custom_id"]]
        response = await client.post(one["url"], json=one["body"])
        assert result["error"] is None
        assert result["response"]["status_code"] == response.status_code
        assert result["response"]["request_id"]
        for fresh in ("id", "created"):
            assert (result["response"]["body"].pop(fresh, 0) == 0) == ("error" in result["response"]["body"])
        assert result["response"]["body"].items() <= response.json().items()


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b'"a"',
        b'{"custom_id": "x"}',
        b'{"custom_id": 5, "url": "/v1/completions", "body": {}}',
        b'{"custom_id": "x", "method": "GET", "url": "/v1/models", "body": {}}',
        b'{"custom_id": "x", "url": "/v1/completions", "body": "Hi"}',
        b'{"custom_id": "x", "url": "/v1/completions", "body": {"prompt": "Hi", "stream": true}}',
        b'{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Hi"}}',  # the same as in the line before
        b'{"custom_id": "\xff", "url": "/v1/completions", "body": {}}',
        b"[" * 100_000,
    ],
    ids=lambda line: line[:60].decode(errors="replace"),
)
async def test_a_bad_line_costs_no_other(run, paths, line):
    assert await run(request("a"), line, request("b")) == BatchCounts(0, 2, 1)
    lines = [json.loads(line) for line in paths[1].read_bytes().splitlines()]
    [bad] = [line for line in lines if line["error"]]
    assert {line["custom_id"] for line in lines if line["response"]} == {"a", "b"}
    assert (bad["response"], bad["error"]["code"], bad["error"]["line"]) == (None, "invalid_line", 2)
    assert bad["error"]["message"].startswith("line 2: ") and len(bad["error"]["message"]) < 1100
    assert await run(request("a"), request("x"), request("b")) == BatchCounts(2, 1, 0)  # mended in the input
    assert results(paths[1]).keys() == {"a", "x", "b"}


async def test_unknown_urls_are_answered(run, paths):
    await run(
        request("a", {"url": "/v1/embeddings", "body": {"input": "Hi"}}), request("b", {"url": "nonsense", "body": {}})
    )
    for result in results(paths[1]).values():
        assert result["response"]["status_code"] in (400, 404)
        assert_valid(result["response"]["body"], "ErrorResponse")


async def test_what_is_answered_is_not_asked_again(run, core, paths):
    requests = [request(str(i)) for i in range(6)]
    await run(*requests[:3])
    before = paths[1].read_bytes()
    assert await run(*requests) == BatchCounts(3, 3, 0)
    assert paths[1].read_bytes().startswith(before)
    assert len(core.requests) == 6
    assert results(paths[1]).keys() == {str(i) for i in range(6)}


async def test_a_torn_last_line_is_mended_wherever_it_is_torn(run, paths):
    requests = [request("a"), request("b")]
    await run(*requests, max_in_flight=1)
    whole = paths[1].read_bytes()
    first_length = whole.index(b"\n") + 1
    for length in range(first_length, len(whole), 7):
        paths[1].write_bytes(whole[:length])
        assert await run(*requests) == BatchCounts(1, 1, 0)
        assert results(paths[1]).keys() == {"a", "b"}
        assert paths[1].read_bytes().startswith(whole[:first_length])


async def test_failures_of_ours_are_asked_again_and_the_client_s_are_not(run, core, paths):
    core.script = fails
    assert await run(request("a"), request("b", n=-1)) == BatchCounts(0, 0, 2)
    assert results(paths[1])["a"]["response"]["status_code"] == 500
    core.script = says(TEXT)
    assert await run(request("a"), request("b", n=-1)) == BatchCounts(1, 1, 0)
    assert results(paths[1])["a"]["response"]["body"]["choices"][0]["message"]["content"] == TEXT


async def test_another_file_is_left_alone(run, paths):
    content = b'{"important": 1}\n{"custom'
    paths[1].write_bytes(content)
    with pytest.raises(ValueError, match="line 1 is no answer of a batch"):
        await run(request("a"))
    assert paths[1].read_bytes() == content
    assert sorted(paths[1].parent.iterdir()) == sorted(paths)


async def test_only_so_many_are_in_flight(run, core):
    core.is_holding = True
    running = asyncio.create_task(run(*[request(str(i)) for i in range(10)], max_in_flight=3))
    for num_asked in (3, 4, 5):
        while len(core.requests) < num_asked:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(core.requests) == num_asked
        core.answer(core.requests[num_asked - 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert set(core.aborted) >= {core.requests[3].request_id, core.requests[4].request_id}


async def test_an_engine_that_dies_leaves_no_refusals_in_the_output(run, core, paths):
    core.is_holding = True
    running = asyncio.create_task(run(*[request(str(i)) for i in range(9)], max_in_flight=3))
    while len(core.requests) < 3:
        await asyncio.sleep(0.001)
    core.answer(core.requests[0])
    while not paths[1].read_bytes():
        await asyncio.sleep(0.001)
    core.kill()
    with pytest.raises(EngineUnavailableError):
        await running
    assert results(paths[1]).keys() == {"0"}
