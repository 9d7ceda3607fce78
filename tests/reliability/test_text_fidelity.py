"""A17 and A18: characters that lie across tokens, across steps and across the end of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from octavo.core.messages import EngineRequest, RequestOutput
from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint
from tests.engine.conftest import byte_level, sentencepiece
from tests.engine.tiny_model import byte_id
from tests.server.events import read_events
from tests.server.scripted_core import says

__all__ = ["byte_level", "sentencepiece"]  # fixtures

NUM_TEXTS = 10_000
MAX_PIECES = 4
MAX_STEP_TOKENS = 4
PART = "\N{REPLACEMENT CHARACTER}"
DELTAS = SamplingParams(max_tokens=None, output_kind=RequestOutputKind.DELTA, skip_special_tokens=False)
HARD_PIECES = (
    *("👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇰🇷", "❤️", "안녕", "한글", "e\u0301\u0302", "ﷺ", "नमस्ते", "\u200d", "\u202e"),
    *("\r\n", "\t", "  ", " ", "\n\n", "\0", PART, "\ufeff", "\U0010ffff", "the lighthouse", "hello", "1234", "<0x0A>"),
)


def random_text(random: Random) -> str:
    """Hard pieces, and characters from anywhere in Unicode."""
    pieces = []
    for _ in range(random.randint(1, MAX_PIECES)):
        if random.random() < 0.5:
            pieces.append(random.choice(HARD_PIECES))
        else:
            limit = random.choice((0x80, 0x800, 0x10000, 0x110000))
            pieces.append("".join(map(chr, (random.randrange(limit) for _ in range(random.randint(1, 3))))))
    text = "".join(pieces).replace("▁", "_")  # which SentencePiece takes for a space
    return text.encode("utf-8", "ignore").decode()  # no halves of surrogate pairs


@pytest.fixture(scope="module", params=["byte_level", "sentencepiece", pytest.param("demo", marks=pytest.mark.model)])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "demo":
        path: Path = request.getfixturevalue("demo_model_path")
        return Tokenizer(open_checkpoint(path).tokenizer_spec)
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def unknown_bytes(tokenizer: Tokenizer) -> set[int]:
    """What the vocabulary has no tokens for, and drops: some lack a few control characters and rare beginnings."""
    known = {tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)}
    return {byte for byte in range(256) if bytes([byte]) not in known}


def deltas_of(tokenizer: Tokenizer, token_ids: Sequence[int], random: Random) -> Iterator[str]:
    """What a client gets of these tokens, of which a few come in each step."""
    processor = OutputProcessor(tokenizer)
    processor.add_request(EngineRequest("r", (5,), DELTAS, seed=0))
    start = 0
    while start < len(token_ids):
        end = min(start + random.randint(1, MAX_STEP_TOKENS), len(token_ids))
        reason = "length" if end == len(token_ids) else None
        news = RequestOutput("r", 0, tuple(token_ids[start:end]), finish_reason=reason)
        for output in processor.process([news]).outputs:
            yield output.outputs[0].text
        start = end


def test_a17_a_text_comes_back_whole_in_whole_characters(tokenizer):
    random, unknown = Random(17), unknown_bytes(tokenizer)
    for _ in range(NUM_TEXTS):
        text = "".join(character for character in random_text(random) if unknown.isdisjoint(character.encode()))
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(token_ids, skip_special_tokens=False) == text
        whole = tokenizer.decode(token_ids, skip_special_tokens=False, is_continuation=True)
        assert whole.removeprefix(whole[: len(whole) - len(text)]) == text  # but for SentencePiece's first space
        seen = ""
        for delta in deltas_of(tokenizer, token_ids, random):
            seen += delta
            assert whole.startswith(seen)  # half a character would be one that the text does not have
        assert seen == whole


def test_a17_tokens_in_any_order_are_their_bytes(tokenizer):
    random = Random(18)
    for _ in range(NUM_TEXTS // 10):
        token_ids = [random.randrange(tokenizer.vocab_size) for _ in range(random.randint(1, 20))]
        data = b"".join(map(tokenizer.token_bytes, token_ids))
        assert "".join(deltas_of(tokenizer, token_ids, random)) == data.decode("utf-8", "replace")


CUT_TEXTS = [
    text.encode()[:size]
    for text in ("é", "a안", "🙂", "👍🏽")
    for size in range(1, len(text.encode()))
    if text.encode()[:size].decode("utf-8", "ignore").encode() != text.encode()[:size]
]


@pytest.mark.anyio
@pytest.mark.parametrize("data", CUT_TEXTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a18_the_length_limit_within_a_character(client, core, data, stream):
    core.script = says(data, "length")
    text = data.decode("utf-8", "replace")
    chat = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 1, "stream": stream}
    response = await client.post("/v1/chat/completions", json=chat)
    choices = choices_of(response, stream)
    shown = "delta" if stream else "message"
    assert "".join(choice[shown].get("content", "") for choice in choices) == text
    entries = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    assert [entry["bytes"] for entry in entries] == [[byte] for byte in data]
    assert all(entry["top_logprobs"][0]["bytes"] == entry["bytes"] for entry in entries)
    assert choices[-1]["finish_reason"] == "length"

    fields = {"prompt": "Hi", "logprobs": 1, "return_token_ids": True, "stream": stream}
    choices = choices_of(await client.post("/v1/completions", json=fields), stream)
    assert "".join(choice["text"] for choice in choices) == text
    assert [i for choice in choices for i in choice["token_ids"]] == [byte_id(byte) for byte in data]
    assert choices[-1]["finish_reason"] == "length"


def choices_of(response, stream: bool) -> list[dict]:
    assert response.status_code == 200
    if stream:
        return [choice for event in read_events(response) for choice in event["choices"]]
    choices: list[dict] = json.loads(response.content.decode(), parse_constant=pytest.fail)["choices"]
    return choices
