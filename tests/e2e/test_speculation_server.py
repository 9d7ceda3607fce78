"""Drafts over HTTP: a stream brings the same pieces, and /metrics says what they brought."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server_process import ServerProcess

BODY = {"model": "tiny", "prompt": "ab" * 20, "max_tokens": 40, "temperature": 0.9, "seed": 4, "logprobs": 2}
BODY |= {"ignore_eos": True}


@pytest.fixture(scope="module", params=["draft_model", "none"])
def answers(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[tuple[bool, dict, list[dict], str]]:
    """Whether it guesses, an answer at once, the same as a stream, and the metrics after both."""
    config = json.dumps({"model": str(tiny_model), "num_speculative_tokens": 4})
    options = ("--speculative-config", config) if request.param == "draft_model" else ()
    with ServerProcess(tiny_model, "--served-model-name", "tiny", *options) as server:
        server.wait_until_ready()
        whole = server.client.post("/v1/completions", json=BODY).json()["choices"][0]
        with server.client.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as response:
            lines = [line[6:] for line in response.iter_lines() if line.startswith("data: {")]
        pieces = [json.loads(line)["choices"][0] for line in lines if json.loads(line)["choices"]]
        yield bool(options), whole, pieces, server.client.get("/metrics").text


def test_a_stream_holds_what_the_answer_holds(answers):
    _, whole, pieces, _ = answers
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    logprobs = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [value for part in logprobs for value in part[name]] == whole["logprobs"][name]
    assert len(whole["logprobs"]["tokens"]) == 40


def test_what_drafts_brought_is_counted(answers):
    is_guessing, _, _, metrics = answers
    counts = [
        int(float(value)) for value in re.findall(r"^octavo:spec_decode_num_\w+?_total{.*} (\S+)$", metrics, re.M)
    ]
    num_drafts, num_draft_tokens, num_accepted, *at_positions = counts
    assert (num_drafts > 0) == is_guessing
    assert num_draft_tokens == num_accepted == sum(at_positions)  # a model guesses itself
