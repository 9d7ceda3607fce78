"""The server as its clients meet it: a real process, real sockets, the tiny model or the demo model."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from octavo import LLM, SamplingParams
from tests.e2e.scenarios import PREFIX, SCENARIOS, Scenario, serve_alone
from tests.e2e.server_process import ServerProcess, until

NUM_CLIENTS = 8
CONVERSATION = [{"role": "user", "content": PREFIX + "Why?"}]


@pytest.fixture(scope="module", params=["tiny", pytest.param("demo", marks=pytest.mark.model)])
def model_path(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(f"{request.param}_model" if request.param == "tiny" else "demo_model_path")
    return path


@pytest.fixture(scope="module")
def server(model_path: Path) -> Iterator[ServerProcess]:
    options = ["--max-model-len", "320", "--max-num-seqs", "8", "--max-queued-requests", "200"]
    with ServerProcess(model_path, *options) as server:
        yield server.wait_until_ready()


def completion_body(scenario: Scenario, stream: bool) -> dict:
    params = scenario.params
    return {
        "prompt": scenario.prompt,
        "stream": stream,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "seed": params.seed,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
        "ignore_eos": params.ignore_eos,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "logprobs": params.logprobs,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "logit_bias": {str(token_id): bias for token_id, bias in params.logit_bias},
        "allowed_token_ids": params.allowed_token_ids,
        "bad_words": list(params.bad_words),
        "guided_json": params.structured_outputs and params.structured_outputs.json,
        "guided_regex": params.structured_outputs and params.structured_outputs.regex,
    }


def ask(server: ServerProcess, path: str, body: dict) -> list[dict]:
    """The whole answer, or the events of a stream."""
    response = server.client.post(path, json=body)
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        return [response.json()]
    *events, end, rest = response.content.split(b"\n\n")
    assert (end, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def served_answer(server: ServerProcess, scenario: Scenario, stream: bool) -> tuple:
    """(text, tokens, log-probabilities, finish_reason, stop_reason), put together from all events."""
    text = ""
    tokens: list[str] = []
    logprobs: list[float] = []
    for event in ask(server, "/v1/completions", completion_body(scenario, stream)):
        [choice] = event["choices"]
        text += choice["text"]
        tokens += choice["logprobs"]["tokens"] if choice["logprobs"] else []
        logprobs += choice["logprobs"]["token_logprobs"] if choice["logprobs"] else []
    return text, tokens, logprobs, choice["finish_reason"], choice["stop_reason"]


@pytest.mark.equality
def test_offline_and_served_are_the_same_to_the_bit(model_path, server):
    with LLM(str(model_path), max_model_len=320, max_num_seqs=8) as llm:
        offline = {name: outputs[0] for name, outputs in serve_alone(llm).items()}
    expected = {}
    for name, output in offline.items():
        assert output.logprobs is not None
        chosen = [by_id[token_id] for token_id, by_id in zip(output.token_ids, output.logprobs, strict=True)]
        expected[name] = (
            output.text,
            [logprob.decoded_token for logprob in chosen],
            [logprob.logprob for logprob in chosen],
            output.finish_reason,
            output.stop_reason,
        )
    assert {s.name: served_answer(server, s, stream=False) for s in SCENARIOS} == expected  # one after the other
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        together = pool.map(lambda scenario: served_answer(server, scenario, stream=True), SCENARIOS)
        assert dict(zip([s.name for s in SCENARIOS], together, strict=True)) == expected


@pytest.mark.equality
def test_chat_streamed_and_whole_are_the_same_alone_and_among_eight(server):
    fields = {"messages": CONVERSATION, "seed": 5, "n": 2, "max_tokens": 30, "logprobs": True, "top_logprobs": 2}
    [whole] = ask(server, "/v1/chat/completions", fields)
    expected = [
        (choice["message"]["content"], choice["logprobs"]["content"], choice["finish_reason"])
        for choice in whole["choices"]
    ]
    assert expected[0] != expected[1]

    def streamed(_):
        answers: list[tuple[str, list[dict], str | None]] = [("", [], None)] * 2
        for event in ask(server, "/v1/chat/completions", fields | {"stream": True}):
            [choice] = event["choices"]
            text, entries, _ = answers[choice["index"]]
            entries = entries + (choice["logprobs"] or {"content": []})["content"]
            answers[choice["index"]] = (text + choice["delta"].get("content", ""), entries, choice["finish_reason"])
        return answers

    assert streamed(0) == expected
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        assert list(pool.map(streamed, range(NUM_CLIENTS))) == [expected] * NUM_CLIENTS


@pytest.mark.equality
def test_an_echo_scores_the_prompt_as_python_does(model_path, server):
    prompts = [PREFIX, "Short.", 2 * PREFIX + "!"]
    with LLM(str(model_path), max_model_len=320, max_num_seqs=8) as llm:
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1)
        outputs = [llm.generate(prompt, params, use_tqdm=False)[0] for prompt in prompts]
    expected = []
    for output in outputs:
        scores = zip(output.prompt_token_ids[1:], (output.prompt_logprobs or ())[1:], strict=True)
        expected.append([None, *(by_id[token_id].logprob for token_id, by_id in scores if by_id)])
    body = {"prompt": [output.prompt_token_ids for output in outputs], "echo": True, "max_tokens": 0, "logprobs": 1}
    for _ in range(2):  # what the cache holds by then makes no difference
        [answer] = ask(server, "/v1/completions", body)
        assert [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]] == expected
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for choice, output in zip(answer["choices"], outputs, strict=True):
        assert len(choice["logprobs"]["top_logprobs"]) == len(output.prompt_token_ids)
        assert choice["text"].endswith(output.prompt or "")


def test_usage_counts_what_the_prefix_cache_gave(server):
    body = {"prompt": 4 * PREFIX + "cached", "max_tokens": 1, "cache_salt": "of this test"}
    cached = [ask(server, "/v1/completions", body)[0]["usage"] for _ in range(2)]
    counts = [usage["prompt_tokens_details"]["cached_tokens"] for usage in cached]
    assert counts[0] == 0 and 0 < counts[1] < cached[1]["prompt_tokens"]
    body |= {"prompt": 2 * PREFIX + "?" * 40, "explain_cache_miss": True}
    details = ask(server, "/v1/completions", body)[0]["usage"]["prompt_tokens_details"]
    assert details["cache_misses"] == [{"position": details["cached_tokens"], "reason": "differs"}]
    assert details["cached_tokens"] > 16


def test_one_request_id_for_ten_requests(server):
    def answer(i, headers):
        body = {"prompt": f"Number {i}:", "max_tokens": 8, "temperature": 0, "request_id": "mine"}
        response = server.client.post("/v1/completions", json=body, headers=headers)
        assert response.status_code == 200
        return response.headers["x-request-id"], response.json()["choices"]

    expected = [answer(i, {})[1] for i in range(10)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda i: answer(i, {"x-request-id": "mine"}), range(10)))
    assert answers == [("mine", choices) for choices in expected]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_free_everything(server, stream, reset):
    body = {"prompt": PREFIX, "max_tokens": 200, "ignore_eos": True, "n": 16, "stream": stream}  # most of it waits
    until(server.is_idle)
    num_left = sum(" 499 " in line for line in server.log)
    connections = [raw_post(server, body) for _ in range(4)]
    until(lambda: server.load()["num_running"] > 0)
    for connection in connections:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    until(server.is_idle)
    until(lambda: sum(" 499 " in line for line in server.log) == num_left + 4)


def raw_post(server: ServerProcess, body: dict) -> socket.socket:
    """A connection on which the request has been sent and nothing been read."""
    content = json.dumps(body).encode()
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    head = ["POST /v1/completions HTTP/1.1", "Host: x", "Content-Type: application/json"]
    head += [f"Content-Length: {len(content)}", "", ""]
    connection.sendall("\r\n".join(head).encode() + content)
    return connection


def test_the_official_client(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    [model] = client.models.list().data
    assert client.models.retrieve(model.id) == model
    fields: dict[str, Any] = {"model": model.id, "messages": CONVERSATION, "seed": 3, "max_tokens": 12}
    text = client.chat.completions.create(**fields).choices[0].message.content
    fields["stop"] = text[len(text) // 2]  # its streams take the length limit for an error
    whole = client.chat.completions.create(**fields)
    with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        stream.until_done()
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content == text.partition(fields["stop"])[0]
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert final.usage and whole.usage
    assert final.usage.completion_tokens == whole.usage.completion_tokens > 0
    completion = client.completions.create(model=model.id, prompt=[PREFIX, "Short."], max_tokens=4, logprobs=1)
    assert [choice.index for choice in completion.choices] == [0, 1]
    with pytest.raises(openai.NotFoundError) as not_found:
        client.chat.completions.create(**fields | {"model": "gpt-99"})
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(**fields | {"messages": [{"role": "user", "content": "long " * 5000}]})
    assert too_long.value.code == "context_length_exceeded"
    assert "maximum context length is 320 tokens" in str(too_long.value)
