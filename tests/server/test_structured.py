"""The fields that say what an output must be, on their way to the core; and what the core says of a grammar."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.core.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.engine import wire
from tests.engine.tiny_model import EOS_ID, NUM_TOKENS, SPECIAL_TOKENS

pytestmark = pytest.mark.anyio

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
}
SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"enum": ["é"]}}}
BY_SCHEMA = StructuredOutputsParams(json=SCHEMA)
ANY_OBJECT = StructuredOutputsParams(json_object=True)

FIELDS: list[tuple[dict[str, Any], StructuredOutputsParams | None]] = [
    ({}, None),
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, ANY_OBJECT),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, BY_SCHEMA),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}, BY_SCHEMA),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": False}}},
        BY_SCHEMA,
    ),
    ({"structured_outputs": {"json": SCHEMA}}, BY_SCHEMA),
    ({"structured_outputs": {"json": SCHEMA, "regex": None}}, BY_SCHEMA),
    ({"structured_outputs": {"json_object": True}}, ANY_OBJECT),
    ({"structured_outputs": {"regex": "a+"}}, StructuredOutputsParams(regex="a+")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutputsParams(choice=("a", "b"))),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, StructuredOutputsParams(grammar='start: "a"')),
    ({"guided_json": SCHEMA}, BY_SCHEMA),
    ({"guided_json": '{"type": "null"}'}, StructuredOutputsParams(json={"type": "null"})),
    ({"guided_regex": "a+", "response_format": {"type": "text"}}, StructuredOutputsParams(regex="a+")),
    ({"guided_choice": ["a", "b"]}, StructuredOutputsParams(choice=("a", "b"))),
    ({"guided_grammar": 'root ::= "a"', "guided_json": None}, StructuredOutputsParams(grammar='root ::= "a"')),
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("fields", "expected"), FIELDS)
async def test_the_core_is_told_what_is_asked_for(client, core, path, fields, expected):
    response = await client.post(path, json=BODIES[path] | fields)
    assert response.status_code == 200, response.text
    [request] = core.requests
    assert request.sampling_params.structured_outputs == expected


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, ANY_OBJECT),
        ({"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}, BY_SCHEMA),
    ],
)
async def test_responses_have_a_form_of_their_own(client, core, text_format, expected):
    response = await client.post("/v1/responses", json={"input": "Hi", "text": {"format": text_format}})
    assert response.json()["text"]["format"] == text_format
    assert core.requests[0].sampling_params.structured_outputs == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_regex": "a", "guided_json": {}},
        {"response_format": {"type": "json_object"}, "structured_outputs": {"json_object": True}},
    ],
)
async def test_two_fields_at_once_are_refused_by_name(client, core, fields):
    response = await client.post("/v1/completions", json={"prompt": "Hi"} | fields)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert all(name in message for name in fields) and message.endswith("send one of them")
    assert not core.requests


async def test_the_vocabulary_goes_ahead_of_the_first_grammar_and_never_again(client, core):
    await client.post("/v1/completions", json={"prompt": "Hi"})
    assert not any(isinstance(message, wire.Learn) for message in core.sent)
    both = [client.post("/v1/completions", json={"prompt": "Hi", "guided_regex": "a+"}) for _ in range(2)]
    await asyncio.gather(*both, client.post("/v1/completions", json={"prompt": "Hi"}))
    learned = [place for place, message in enumerate(core.sent) if isinstance(message, wire.Learn)]
    constrained = [
        place
        for place, message in enumerate(core.sent)
        if isinstance(message, wire.Add) and message.request.sampling_params.structured_outputs
    ]
    assert len(learned) == 1 and learned[0] < min(constrained)
    vocabulary = core.sent[learned[0]].vocabulary
    assert len(vocabulary.tokens) == NUM_TOKENS
    assert vocabulary.tokens[-1] == b"\xff"
    assert vocabulary.special_token_ids == tuple(range(len(SPECIAL_TOKENS)))
    assert vocabulary.eos_token_ids == (EOS_ID,)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_that_the_core_refuses_is_a_400_whatever_was_to_be_streamed(client, core, path, stream):
    def refuse(request):
        core.say(wire.Rejected(request.request_id, "invalid_grammar", "no", "structured_outputs"))
        return ()

    core.script = refuse
    asked = {"text": {"format": {"type": "json_object"}}} if path == "/v1/responses" else {"guided_regex": "a"}
    response = await client.post(path, json=BODIES[path] | asked | {"stream": stream})
    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": "no",
        "type": "invalid_request_error",
        "param": "structured_outputs",
        "code": "invalid_grammar",
    }


async def test_who_leaves_while_a_grammar_is_compiled_leaves_nothing(engine, core):
    core.is_holding = True
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    waiting = asyncio.create_task(engine.submit(["Hi"], params))
    while not core.requests:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert core.aborted == [core.requests[0].request_id]
