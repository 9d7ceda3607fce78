"""What a client can be told of its prompt: log-probabilities, an echo with them, token ids."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.server.app import create_app
from tests.engine.tiny_model import EOS_ID, byte_id
from tests.server.conftest import client_of
from tests.server.events import read_events
from tests.server.scripted_core import says

pytestmark = pytest.mark.anyio

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PART = "\N{REPLACEMENT CHARACTER}"
USER = {"role": "user", "content": "é"}


def ids(text: str) -> list[int]:
    return [byte_id(byte) for byte in text.encode()]


async def ask(client, path, **fields) -> dict[str, Any]:
    response = await client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def ask_choice(client, **fields) -> dict[str, Any]:
    [choice] = (await ask(client, COMPLETIONS, **fields))["choices"]
    return choice


async def stream_choice(client, **fields) -> dict[str, Any]:
    """The events of one choice, put together as clients do it: texts and lists one after the other."""
    merged: dict[str, Any] = {"text": "", "logprobs": {}}
    for event in read_events(await client.post(COMPLETIONS, json=fields | {"stream": True})):
        [choice] = event["choices"]
        merged["text"] += choice["text"]
        for name, values in (choice["logprobs"] or {}).items():
            merged["logprobs"][name] = merged["logprobs"].get(name, []) + values
    return merged


@pytest.mark.parametrize("prompt", ["aé", ids("aé")])
async def test_an_echo_with_log_probabilities(client, core, prompt):
    core.script = says("b", "length")
    fields = {"prompt": prompt, "echo": True, "logprobs": 1}
    choice = await ask_choice(client, **fields)
    assert choice["text"] == "aéb"
    assert choice["logprobs"] == {
        "text_offset": [0, 1, 1, 2],
        "token_logprobs": [None, -1.5, -1.5, -0.5],
        "tokens": ["a", PART, PART, "b"],
        "top_logprobs": [None, {"?": -0.25, PART: -1.5}, {"?": -0.25, PART: -1.5}, {"b": -0.5}],
    }
    assert "prompt_logprobs" not in choice
    assert core.requests[0].sampling_params.prompt_logprobs == 1
    streamed = await stream_choice(client, **fields)
    assert (streamed["text"], streamed["logprobs"]) == (choice["text"], choice["logprobs"])


async def test_an_echo_alone(client, core):
    """How evaluations ask for the log-probabilities of a text: they want no token more."""
    core.script = says("x", "length")
    fields = {"prompt": ["ab", "c"], "echo": True, "max_tokens": 0, "logprobs": 0}
    answer = await ask(client, COMPLETIONS, **fields)
    assert [request.sampling_params.max_tokens for request in core.requests] == [1, 1]
    assert [(choice["text"], choice["finish_reason"]) for choice in answer["choices"]] == [
        ("ab", "length"),
        ("c", "length"),
    ]
    assert [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]] == [[None, -1.5], [None]]
    assert answer["usage"]["completion_tokens"] == 0
    events = read_events(await client.post(COMPLETIONS, json=fields | {"stream": True}))
    assert sorted(event["choices"][0]["text"] for event in events) == ["ab", "c"]
    plain = await ask_choice(client, prompt="ab", echo=True, max_tokens=0)
    assert (plain["text"], plain["logprobs"], plain["finish_reason"]) == ("ab", None, "length")


async def test_every_choice_has_the_echo(client, core):
    core.script = says("x", "length")
    for stream in (False, True):
        body = {"prompt": ["ab", "c"], "echo": True, "logprobs": 0, "n": 2, "seed": 1, "stream": stream}
        response = await client.post(COMPLETIONS, json=body)
        chunks = read_events(response) if stream else [response.json()]
        by_index = {choice["index"]: choice for chunk in chunks for choice in chunk["choices"]}
        assert [by_index[i]["text"] for i in range(4)] == ["abx", "abx", "cx", "cx"]
        assert [len(by_index[i]["logprobs"]["tokens"]) for i in range(4)] == [3, 3, 2, 2]


async def test_log_probabilities_of_the_prompt(client, core):
    core.script = says("x", "length")
    expected = [
        None,
        {
            str(byte_id(ord("b"))): {"logprob": -1.5, "rank": 2, "decoded_token": "b"},
            str(byte_id(ord("?"))): {"logprob": -0.25, "rank": 1, "decoded_token": "?"},
        },
    ]
    choice = await ask_choice(client, prompt="ab", prompt_logprobs=1)
    assert (choice["prompt_logprobs"], choice["logprobs"]) == (expected, None)
    answer = await ask(client, CHAT, messages=[USER], prompt_logprobs=1, n=2, seed=1)
    assert len(answer["prompt_logprobs"]) == len(core.requests[-1].prompt_token_ids)
    assert (await ask(client, CHAT, messages=[USER])).keys() == answer.keys() - {"prompt_logprobs"}


async def test_token_ids(client, core):
    core.script = says("é")
    answer = [*ids("é"), EOS_ID]
    choice = await ask_choice(client, prompt="ab", return_token_ids=True)
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (ids("ab"), answer)
    events = read_events(
        await client.post(COMPLETIONS, json={"prompt": "ab", "return_token_ids": True, "stream": True})
    )
    choices = [event["choices"][0] for event in events]
    assert [choice["prompt_token_ids"] for choice in choices if "prompt_token_ids" in choice] == [ids("ab")]
    assert [token_id for choice in choices for token_id in choice["token_ids"]] == answer

    whole = await ask(client, CHAT, messages=[USER], return_token_ids=True)
    prompt_ids = ids("user: é\nassistant: ")
    assert (whole["prompt_token_ids"], whole["choices"][0]["token_ids"]) == (prompt_ids, answer)
    events = read_events(await client.post(CHAT, json={"messages": [USER], "return_token_ids": True, "stream": True}))
    assert [event.get("prompt_token_ids") for event in events[:2]] == [prompt_ids, None]
    shown = [token_id for event in events for token_id in event["choices"][0].get("token_ids", ())]
    assert shown == answer


async def test_tokens_as_ids(client, core):
    core.script = says("é", "length")
    fields = {"echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}
    logprobs = (await ask_choice(client, prompt="ab", **fields))["logprobs"]
    assert logprobs["tokens"] == [f"token_id:{i}" for i in ids("abé")]
    assert [sorted(top or ()) for top in logprobs["top_logprobs"]] == [
        [],
        sorted([f"token_id:{byte_id(ord('?'))}", f"token_id:{byte_id(ord('b'))}"]),
        *[[f"token_id:{i}"] for i in ids("é")],
    ]
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    [choice] = (await ask(client, CHAT, messages=[USER], **fields))["choices"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{i}" for i in ids("é")]
    assert choice["logprobs"]["content"][0]["top_logprobs"][1]["token"] == f"token_id:{byte_id(ord('?'))}"
    assert choice["logprobs"]["content"][0]["bytes"] == [0xC3]


async def test_a_truncated_prompt_is_echoed_as_it_was_continued(client, core):
    core.script = says("x", "length")
    for prompt in ("abcd", ids("abcd")):
        choice = await ask_choice(client, prompt=prompt, truncate_prompt_tokens=2, echo=True, logprobs=0)
        assert core.requests[-1].prompt_token_ids == tuple(ids("cd"))
        assert (choice["text"], choice["logprobs"]["text_offset"]) == ("cdx", [0, 1, 2])
    await ask(client, CHAT, messages=[USER], truncate_prompt_tokens=3)
    assert core.requests[-1].prompt_token_ids == tuple(ids("t: "))


async def test_spaces_between_special_tokens_make_no_difference(client, core):
    core.script = says("x")
    texts = [
        (await ask_choice(client, prompt="ab", skip_special_tokens=False, spaces_between_special_tokens=spaces))["text"]
        for spaces in (True, False)
    ]
    assert texts == ["x", "x"]


async def test_what_a_request_leaves_open_is_as_the_makers_recommend(loading_engine, core):
    defaults: dict[str, Any] = {"temperature": 0.5, "top_k": 7, "repetition_penalty": 1.25, "max_tokens": 100}
    core.sampling_defaults = defaults
    core.become_ready()
    await loading_engine.wait_until_ready()
    async with client_of(create_app(loading_engine)) as client:
        await ask(client, CHAT, messages=[USER])
        await ask(client, COMPLETIONS, prompt="a")
        await ask(client, CHAT, messages=[USER], temperature=1, top_k=0, repetition_penalty=1, max_tokens=5)
    chat, completion, own = (request.sampling_params for request in core.requests)
    kind = chat.output_kind
    assert chat == SamplingParams(**defaults, output_kind=kind)
    assert completion == SamplingParams(**defaults | {"max_tokens": 16}, output_kind=kind)
    assert own == SamplingParams(max_tokens=5, output_kind=kind)


async def test_a30_all_log_probabilities_where_the_operator_allows_it(loading_engine, core):
    core.max_logprobs = -1
    core.become_ready()
    await loading_engine.wait_until_ready()
    async with client_of(create_app(loading_engine)) as client:
        await ask(client, COMPLETIONS, prompt="a", logprobs=-1)
        await ask(client, CHAT, messages=[USER], logprobs=True, top_logprobs=-1, prompt_logprobs=-1)
        for path, fields in (
            (COMPLETIONS, {"prompt": "a", "logprobs": 260}),
            (CHAT, {"messages": [USER], "logprobs": True, "top_logprobs": -2}),
        ):
            assert (await client.post(path, json=fields)).status_code == 400
    for request in core.requests:
        assert request.sampling_params.logprobs == 259
