"""POST /tokenize and /detokenize, beside the endpoints whose prompts they count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.tiny_model import byte_id, write_tiny_model
from tests.server.scripted_core import MAX_MODEL_LEN

pytestmark = pytest.mark.anyio

BOS_ID = 1
HI = [byte_id(byte) for byte in b"Hi"]
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "look", "description": "around"}}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with texts that begin with BOS."""
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bos_token": "<s>", "add_bos_token": True}))
    return folder


async def ask(client, path, **fields):
    response = await client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_vllms_form(client):
    answer = await ask(client, "/tokenize", model="tiny", prompt="Hi")
    assert answer == {"count": 3, "max_model_len": MAX_MODEL_LEN, "tokens": [BOS_ID, *HI]}
    answer = await ask(client, "/v1/tokenize", prompt=" é", add_special_tokens=False, return_token_strs=True)
    assert answer["token_strs"] == ["Ġ", "Ã", "©"]
    assert await ask(client, "/tokenize", prompt="", add_special_tokens=False) == {
        "count": 0,
        "max_model_len": MAX_MODEL_LEN,
        "tokens": [],
    }


async def test_llama_cpps_form(client):
    assert await ask(client, "/tokenize", content="Hi") == {"tokens": HI}
    assert await ask(client, "/tokenize", content="Hi", add_special=True) == {"tokens": [BOS_ID, *HI]}
    pieces = await ask(client, "/tokenize", content="aé", with_pieces=True)
    assert pieces == {
        "tokens": [
            {"id": byte_id(ord("a")), "piece": "a"},
            {"id": byte_id(0xC3), "piece": [0xC3]},
            {"id": byte_id(0xA9), "piece": [0xA9]},
        ]
    }


async def test_there_and_back(client):
    for text in ("Hi", "Wörld 🦉", "<s>", "\n \t"):
        token_ids = (await ask(client, "/tokenize", content=text))["tokens"]
        assert await ask(client, "/detokenize", tokens=token_ids) == {"prompt": text, "content": text}
    assert (await ask(client, "/detokenize", tokens=[]))["prompt"] == ""


@pytest.mark.parametrize("text", ["Hi", "<s>Hi"])
@pytest.mark.parametrize("wish", [None, True, False])
async def test_a19_a_text_begins_with_bos_once_by_every_way(client, core, text, wish):
    fields = {} if wish is None else {"add_special_tokens": wish}
    expected = HI if (text, wish) == ("Hi", False) else [BOS_ID, *HI]
    await ask(client, "/v1/completions", prompt=text, **fields)
    await ask(client, "/v1/completions", prompt=[text, text], **fields)
    assert [list(request.prompt_token_ids) for request in core.requests] == [expected] * 3
    assert (await ask(client, "/tokenize", prompt=text, **fields))["tokens"] == expected


@pytest.mark.parametrize(
    "fields", [{}, {"add_special_tokens": True}, {"add_generation_prompt": False}, {"tools": [TOOL]}]
)
async def test_a19_a_conversation_is_counted_as_it_is_answered(client, core, fields):
    await ask(client, "/v1/chat/completions", messages=[USER], **fields)
    answer = await ask(client, "/tokenize", messages=[USER], **fields)
    assert answer["tokens"] == list(core.requests[0].prompt_token_ids)
    assert (answer["tokens"][0] == BOS_ID) == fields.get("add_special_tokens", False)


async def test_texts_longer_than_the_context_are_counted(client):
    assert (await ask(client, "/tokenize", prompt="x" * 20_000))["count"] == 20_001


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [USER]}, "messages"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "other"}, "model"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/tokenize", {"messages": [USER], "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        ("/tokenize", {"messages": [USER], "chat_template": "{{ 1 }}"}, "chat_template"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [259]}, "tokens"),
        ("/detokenize", {"tokens": [2**63]}, "tokens"),
    ],
)
async def test_what_they_refuse(client, path, fields, param):
    response = await client.post(path, json=fields)
    assert response.status_code == (404 if param == "model" else 400), response.text
    assert response.json()["error"]["param"] == param
