"""POST /v1/chat/completions with stream: true."""

from __future__ import annotations

import pytest

from tests.server.events import read_events
from tests.server.scripted_core import TEXT, says

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "seed": 1}


def text_of(events, index=0):
    return "".join(
        choice["delta"].get("content", "")
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


async def test_headers(client):
    response = await client.post(URL, json=BODY, headers={"x-request-id": "mine"})
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"] == "mine"
    assert "content-length" not in response.headers


@pytest.mark.parametrize("n", [1, 3])
async def test_shape(client, n):
    events = read_events(await client.post(URL, json=BODY | {"n": n}))
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"
    assert all(len(event["choices"]) == 1 for event in events)  # clients read choices[0] without looking
    assert not any("usage" in event for event in events)
    choices = [event["choices"][0] for event in events]
    # A role for each choice, in order, before anything else, and never again: clients append strings.
    roles = [{"index": i, "delta": {"role": "assistant", "content": ""}} for i in range(n)]
    assert choices[:n] == [role | {"logprobs": None, "finish_reason": None} for role in roles]
    assert not any("role" in choice["delta"] for choice in choices[n:])
    for index in range(n):
        assert text_of(events, index) == TEXT
        mine = [choice for choice in choices if choice["index"] == index]
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + ["stop"]
        assert mine[-1]["delta"] == {}


async def test_usage(client):
    whole = (await client.post(URL, json=BODY | {"stream": False})).json()["usage"]
    *events, last = read_events(await client.post(URL, json=BODY | {"stream_options": {"include_usage": True}}))
    assert last["choices"] == [] and last["usage"] == whole
    assert all(event["choices"] and event["usage"] is None for event in events)
    options = {"continuous_usage_stats": True}
    events = read_events(await client.post(URL, json=BODY | {"stream_options": options}))
    assert all(event["choices"] for event in events)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts) and counts[0] == 0 and events[-1]["usage"] == whole
    options = {"include_usage": False}
    assert not any("usage" in e for e in read_events(await client.post(URL, json=BODY | {"stream_options": options})))


async def test_logprobs_are_those_of_the_whole_answer(client, core):
    core.script = says("é🦉", "length")
    fields = BODY | {"logprobs": True, "top_logprobs": 1}
    whole = (await client.post(URL, json=fields | {"stream": False})).json()["choices"][0]
    choices = [event["choices"][0] for event in read_events(await client.post(URL, json=fields))]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert entries == whole["logprobs"]["content"]


@pytest.mark.parametrize("num_bytes", range(1, 7))
async def test_a_character_cut_by_the_length_limit(client, core, num_bytes):
    data = "é🦉".encode()[:num_bytes]
    core.script = says(data, "length")
    for stream in (False, True):
        response = await client.post(URL, json=BODY | {"stream": stream, "logprobs": True})
        if stream:
            events = read_events(response)
            assert text_of(events) == data.decode(errors="replace")
            assert events[-1]["choices"][0]["finish_reason"] == "length"
            entries = [e for event in events for e in (event["choices"][0]["logprobs"] or {"content": []})["content"]]
        else:
            [choice] = response.json()["choices"]
            assert choice["message"]["content"] == data.decode(errors="replace")
            assert choice["finish_reason"] == "length"
            entries = choice["logprobs"]["content"]
        assert bytes(byte for entry in entries for byte in entry["bytes"]) == data


async def test_text_that_may_begin_a_stop_string_is_held_back_and_not_lost(client):
    for stop in ("llo!", "rld 🦉?"):  # never completed
        assert text_of(read_events(await client.post(URL, json=BODY | {"stop": stop}))) == TEXT
    events = read_events(await client.post(URL, json=BODY | {"stop": ["rld 🦉", "ld"]}))
    assert text_of(events) == "Hallo, Wör"
    assert events[-1]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": "ld",
    }
