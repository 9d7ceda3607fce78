"""The API document: what it says is refused must be refused, and what it says is answered must be answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.server.events import read_events
from tests.server.named_events import read_named_events
from tests.server.scripted_core import says

pytestmark = pytest.mark.anyio

BODIES: dict[str, dict[str, Any]] = {  # the least that each endpoint takes
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**70, 0.5, 4.5, "", "text", [], [""], ["a"] * 17, [1], [[1]], {}),
    *({"5": 101}, {"05": 1}, {"type": "text"}, {"include_usage": 1}),
)
# What a struct cannot say: these depend on the model, or on other fields.
DEPENDS = re.compile(
    "context length|does not exist|needs stream|needs logprobs|must not exceed max_tokens|token ids are integers from 0"
    "|at most 20 are allowed|at least 0 and at most 20|prompt|tool_choice must|tools.0..type|input.0.|messages is empty"
    "|at temperature 0|with logprobs|chat_template is a program|structured_outputs|has no schema|all say what"
)


@pytest.fixture
async def document(client) -> dict[str, Any]:
    response = await client.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    return response.json()


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema | {"components": document["components"]})


def body_schema(document: dict[str, Any], path: str) -> dict[str, Any]:
    name = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return document["components"]["schemas"][name.rpartition("/")[2]]


async def test_every_schema_is_one(document):
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for name in re.findall(r'"#/components/schemas/(\w+)"', str(document).replace("'", '"')):
        assert name in document["components"]["schemas"]


@pytest.fixture
async def filled(client) -> Callable[[str], str]:
    """Fills in what there is of what a path names."""
    response = (await client.post("/v1/responses", json={"input": "Hi"})).json()
    return lambda path: path.replace("{model_id}", "tiny").replace("{response_id}", response["id"])


async def test_every_path_is_served(client, document, filled):
    for path, operations in document["paths"].items():
        for method in sorted(operations, key=("get", "post", "delete").index):
            response = await client.request(method, filled(path))
            assert response.status_code in ((400, 404) if method == "post" else (200,)), path
    response = await client.get("/v1/nothing")
    for path in document["paths"]:
        assert path.partition("{")[0] in response.json()["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
async def test_the_document_says_what_is_accepted(client, core, document, path):
    core.script = says("H")
    schema = body_schema(document, path)
    checker = validator(document, schema)
    for name in schema["properties"]:
        for value in VALUES:
            body = BODIES[path] | {name: value}
            response = await client.post(path, json=body)
            accepted = response.status_code == 200
            if not checker.is_valid(body):
                assert not accepted, body
            elif not accepted and not (name in schema["required"] and value is None):
                assert DEPENDS.search(response.json()["error"]["message"]), (body, response.text)


@pytest.mark.parametrize("path", BODIES)
async def test_the_document_says_what_is_answered(client, document, path):
    ways = document["paths"][path]["post"]["responses"]
    for extra in ({}, {"logprobs": 1 if path == "/v1/completions" else True}):
        answer = await client.post(path, json=BODIES[path] | extra)
        validator(document, ways["200"]["content"]["application/json"]["schema"]).validate(answer.json())
        stream = await client.post(path, json=BODIES[path] | extra | {"stream": True})
        events = read_named_events(stream) if stream.content.startswith(b"event: ") else read_events(stream)
        for event in events:
            validator(document, ways["200"]["content"]["text/event-stream"]["schema"]).validate(event)
    refused = await client.post(path, json={})
    validator(document, ways["default"]["content"]["application/json"]["schema"]).validate(refused.json())


async def test_gets_answer_as_the_document_says(client, document, filled):
    for path, operations in document["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content")
        if content:
            answer = await client.get(filled(path))
            validator(document, content["application/json"]["schema"]).validate(answer.json())


async def test_the_page_asks_nobody_else(client):
    response = await client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|src=|import|@", response.text)
