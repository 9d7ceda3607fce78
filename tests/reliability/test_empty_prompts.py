"""Case A23 of the reliability list: what holds no token is refused, and all else is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.core.admission import RequestRejected
from octavo.engine.input_processor import Prompt
from tests.engine.tiny_model import write_tiny_model
from tests.reliability.bodies import CHAT, COMPLETIONS, assert_refused, post

pytestmark = pytest.mark.anyio

# A tokenizer that puts nothing before a text, one that does, and a chat template that says nothing.
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "begins": {"add_bos_token": True, "bos_token": "<s>"},
    "silent": {"chat_template": "{% if false %}never{% endif %}"},
}


@pytest.fixture(scope="module", params=MODELS)
def tiny_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of these models in turn."""
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / request.param)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | MODELS[request.param]))
    return folder


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["", [""], ["Hi", ""], [], [[]], [[5], []]])
async def test_a23_a_prompt_without_a_token(client, core, tiny_model, prompt, stream):
    body = {"prompt": prompt, "stream": stream}
    if tiny_model.name == "begins" and prompt in ("", [""], ["Hi", ""]):  # then an empty text has a token
        assert (await post(client, COMPLETIONS, body)).status_code == 200
        assert all(request.prompt_token_ids for request in core.requests)
    else:
        await assert_refused(client, core, COMPLETIONS, body, "prompt" if prompt == [] else None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a23_a_conversation_without_a_token(client, core, tiny_model, stream):
    def body(messages: list[Any]) -> dict[str, Any]:
        return {"messages": messages, "stream": stream}

    await assert_refused(client, core, CHAT, body([]), "messages")
    await assert_refused(client, core, CHAT, body([{"role": "user", "content": None}]), "messages[0].content")
    for content in ("", " ", "\n\t"):
        messages = [{"role": "user", "content": content}]
        if tiny_model.name == "silent":
            await assert_refused(client, core, CHAT, body(messages), None)
        else:
            assert (await post(client, CHAT, body(messages))).status_code == 200


async def test_a23_white_space_is_text(client):
    for prompt in (" ", "\n\t"):
        assert (await post(client, COMPLETIONS, {"prompt": prompt})).status_code == 200


def test_a23_offline(tiny_model):
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    prompts: list[Prompt] = ["", [], {"prompt": ""}, {"prompt_token_ids": []}]
    with LLM(str(tiny_model), num_threads=1) as llm:
        for prompt in prompts:
            if tiny_model.name == "begins" and prompt in ("", {"prompt": ""}):
                [output] = llm.generate([prompt], params)
                assert output.prompt_token_ids == [1] and len(output.outputs[0].token_ids) == 3
            else:
                with pytest.raises(RequestRejected, match="no tokens"):
                    llm.generate([prompt], params)
        assert len(llm.generate(" ", params)[0].outputs[0].token_ids) == 3
