"""Every answer, whole and streamed, against what OpenAI's own document says of it."""

from __future__ import annotations

import pytest

from tests.server.events import read_events
from tests.server.openai_schemas import assert_valid
from tests.server.scripted_core import fails, says

pytestmark = pytest.mark.anyio

CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
COMPLETION = ("/v1/completions", {"prompt": ["Hi", "Ho"]})
CHAT_EXTRAS = [
    {},
    {"logprobs": True, "top_logprobs": 2},
    {"n": 2, "logprobs": True},
    {"stop": "lo"},
]
STREAM_EXTRAS = [{}, {"include_usage": True}, {"continuous_usage_stats": True}]


@pytest.mark.parametrize("extra", CHAT_EXTRAS, ids=str)
async def test_chat(client, core, extra):
    for finish_reason in ("stop", "length"):
        core.script = says("é🦉 lo", finish_reason)
        response = await client.post(CHAT[0], json=CHAT[1] | extra)
        assert_valid(response.json(), "CreateChatCompletionResponse")
        for options in STREAM_EXTRAS:
            body = CHAT[1] | extra | {"stream": True, "stream_options": options}
            for event in read_events(await client.post(CHAT[0], json=body)):
                assert_valid(event, "CreateChatCompletionStreamResponse")


@pytest.mark.parametrize("extra", [{}, {"logprobs": 2}, {"n": 2, "logprobs": 0}, {"echo": True}], ids=str)
async def test_completions(client, extra):
    response = await client.post(COMPLETION[0], json=COMPLETION[1] | extra)
    assert_valid(response.json(), "CreateCompletionResponse")


async def test_models(client):
    assert_valid((await client.get("/v1/models")).json(), "ListModelsResponse")
    assert_valid((await client.get("/v1/models/tiny")).json(), "Model")


async def test_errors(client, core):
    for path, body in (CHAT, COMPLETION):
        assert_valid((await client.post(path, json=body | {"n": -1})).json(), "ErrorResponse")
        assert_valid((await client.post(path, content=b"{")).json(), "ErrorResponse")
    assert_valid((await client.get("/v1/nothing")).json(), "ErrorResponse")
    core.script = fails
    *_, last = read_events(await client.post(CHAT[0], json=CHAT[1] | {"stream": True}))
    assert_valid(last, "ErrorResponse")


def test_the_validator_notices():
    for broken in ({}, {"error": {"message": "m", "type": "t", "param": None, "code": 400}}):
        with pytest.raises(AssertionError, match="ErrorResponse"):
            assert_valid(broken, "ErrorResponse")
