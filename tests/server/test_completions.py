"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from tests.engine.tiny_model import byte_id
from tests.server.events import read_events
from tests.server.scripted_core import TEXT, says

pytestmark = pytest.mark.anyio

URL = "/v1/completions"
HI = [byte_id(byte) for byte in b"Hi"]


async def test_the_whole_answer(client):
    body = (await client.post(URL, json={"prompt": "Hi"})).json()
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    num_tokens = len(TEXT.encode()) + 1
    assert body == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": num_tokens,
            "total_tokens": 2 + num_tokens,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }


async def test_defaults(client, core):
    await client.post(URL, json={"prompt": "Hi"})
    await client.post(URL, json={"prompt": "Hi", "max_tokens": None, "logprobs": None, "suffix": None})
    for request in core.requests:
        assert request.sampling_params == SamplingParams(max_tokens=16, output_kind=RequestOutputKind.FINAL_ONLY)


@pytest.mark.parametrize("prompt", ["Hi", ["Hi"], HI, [HI]])
async def test_forms_of_one_prompt(client, core, prompt):
    body = (await client.post(URL, json={"prompt": prompt})).json()
    assert [choice["text"] for choice in body["choices"]] == [TEXT]
    assert core.requests[0].prompt_token_ids == tuple(HI)


@pytest.mark.parametrize("prompts", [["Hi", "Ho", "Hu"], [HI, [5], [6, 7]]])
async def test_several_prompts(client, core, prompts):
    """Choices stand prompt by prompt, whatever the order in which they end."""
    core.script = lambda request: says(str(len(core.requests)))(request)  # the first prompt's answer is "1"
    fields = {"prompt": prompts, "n": 2, "seed": 1}
    body = (await client.post(URL, json=fields)).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == list(enumerate("112233"))
    assert body["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 9

    core.sent.clear()
    *events, last = read_events(
        await client.post(URL, json=fields | {"stream": True, "stream_options": {"include_usage": True}})
    )
    texts, ends = [""] * 6, [0] * 6
    for event in events:
        [choice] = event["choices"]
        texts[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] == "stop"
    assert (texts, ends) == (list("112233"), [1] * 6)
    assert last["choices"] == [] and last["usage"] == body["usage"]


async def test_logprobs(client, core):
    core.script = says("aé?", "length")
    fields = {"prompt": "Hi", "logprobs": 2}
    [choice] = (await client.post(URL, json=fields)).json()["choices"]
    part = "\N{REPLACEMENT CHARACTER}"
    assert choice["logprobs"] == {
        "text_offset": [0, 1, 1, 2],
        "token_logprobs": [-0.5] * 4,
        "tokens": ["a", part, part, "?"],
        "top_logprobs": [{"a": -0.5, "?": -9999.0}, *[{part: -0.5, "?": -9999.0}] * 2, {"?": -0.5}],
    }
    merged: dict[str, list[Any]] = {name: [] for name in choice["logprobs"]}
    for event in read_events(await client.post(URL, json=fields | {"stream": True})):
        for name, values in (event["choices"][0]["logprobs"] or {}).items():
            merged[name] += values
    assert merged == choice["logprobs"]


async def test_logprobs_0_is_the_chosen_token_alone(client, core):
    core.script = says("a", "length")
    [choice] = (await client.post(URL, json={"prompt": "Hi", "logprobs": 0})).json()["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{"a": -0.5}]


@pytest.mark.parametrize("prompt", ["Hi", HI])
async def test_echo(client, prompt):
    [choice] = (await client.post(URL, json={"prompt": prompt, "echo": True})).json()["choices"]
    assert choice["text"] == "Hi" + TEXT
    events = read_events(await client.post(URL, json={"prompt": prompt, "echo": True, "stream": True}))
    assert "".join(event["choices"][0]["text"] for event in events) == "Hi" + TEXT


async def test_a_stream_has_no_roles(client):
    events = read_events(await client.post(URL, json={"prompt": "Hi", "stream": True}))
    for event in events:
        assert event["object"] == "text_completion"
        assert event["choices"][0].keys() == {"index", "text", "logprobs", "finish_reason", "stop_reason"}
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["stop"]
