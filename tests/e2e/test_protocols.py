"""One conversation by three APIs: the same bytes, whole and streamed; and nothing is left of a client that leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server_process import ServerProcess, until

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(
        tiny_model, "--max-model-len", "512", "--max-num-seqs", "4", "--served-model-name", "tiny"
    ) as server:
        yield server.wait_until_ready()


def chat_text(server: ServerProcess) -> str:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": NUM_TOKENS}
    text: str = server.client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    return text


def events(server: ServerProcess, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = server.client.post(path, json=body | {"stream": True})
    assert response.status_code == 200, response.text
    lines = response.content.split(b"\n")  # not splitlines: a text may hold other separators
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]


def test_responses(server):
    expected = chat_text(server)
    body = {"input": MESSAGES[1:], "instructions": "Be brief.", "temperature": 0, "max_output_tokens": NUM_TOKENS}
    whole = server.client.post("/v1/responses", json=body).json()
    assert whole["output"][0]["content"][0]["text"] == expected
    assert whole["usage"]["output_tokens"] == NUM_TOKENS and whole["status"] == "incomplete"
    deltas = [event["delta"] for event in events(server, "/v1/responses", body) if "delta" in event]
    assert "".join(deltas) == expected
    begun = server.client.post("/v1/responses", json=body | {"background": True}).json()
    url = f"/v1/responses/{begun['id']}"
    until(lambda: server.client.get(url).json()["status"] == "incomplete")
    assert server.client.get(url).json()["output"][0]["content"] == whole["output"][0]["content"]


def test_messages(server):
    expected = chat_text(server)
    body = {"messages": MESSAGES[1:], "system": "Be brief.", "temperature": 0, "max_tokens": NUM_TOKENS}
    whole = server.client.post("/v1/messages", json=body | {"model": "tiny"}).json()
    assert whole["content"] == [{"type": "text", "text": expected}]
    assert (whole["usage"]["output_tokens"], whole["stop_reason"]) == (NUM_TOKENS, "max_tokens")
    deltas = [event["delta"] for event in events(server, "/v1/messages", body) if "delta" in event]
    assert "".join(delta.get("text", "") for delta in deltas) == expected


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_client_that_leaves(server, path):
    body = {"input": "Hi", "messages": MESSAGES[1:], "max_tokens": 400, "stream": True}
    with server.client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        next(response.iter_raw())
    until(server.is_idle)


def test_a_response_that_is_cancelled(server):
    body = {"input": "Hi", "background": True, "max_output_tokens": 400}
    begun = [server.client.post("/v1/responses", json=body).json() for _ in range(20)]  # the last of which still waits
    statuses = [server.client.post(f"/v1/responses/{one['id']}/cancel").json()["status"] for one in reversed(begun)]
    assert "cancelled" in statuses and set(statuses) <= {"cancelled", "incomplete", "completed"}
    until(server.is_idle)
