"""One table of limits: what HTTP takes and refuses is what Python does, in the same words (A09-A18, A30, A37)."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import MAX_STOP_STRINGS, RANGES, ParameterError, SamplingParams
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.input_processor import InputProcessor
from tests.engine.tiny_model import EOS_ID, NUM_TOKENS
from tests.reliability.bodies import CHAT, COMPLETIONS, assert_refused, post

pytestmark = pytest.mark.anyio

NUMBERS: list[float] = sorted(
    {-(2**64), -(2**63) - 1, -(2**63), -2, -1, -0.5, 0, 1e-30, 1e-9, 0.01, 0.5, 1, 1.5, 2, 2.5, 16, 20, 21, 100}
    | {101, 128, 129, NUM_TOKENS, NUM_TOKENS + 1, 319, 320, 512, 10**6, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**70}
)
NUMERIC_FIELDS = sorted(RANGES)
# A field's neighbours, without which any value of it would be refused.
COMPANIONS: dict[str, dict[str, Any]] = {"n": {"seed": 1}, "min_tokens": {"max_tokens": 512}}
LISTS: list[tuple[str, Any]] = [
    ("stop", ["a", ""]),
    ("stop", ["x"] * MAX_STOP_STRINGS),
    ("stop", ["x"] * 1000),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [NUM_TOKENS - 1]),
    ("stop_token_ids", [NUM_TOKENS]),
    ("stop_token_ids", [5] * 129),
    ("allowed_token_ids", []),
    ("allowed_token_ids", [NUM_TOKENS]),
    ("allowed_token_ids", [5] * 1025),
    ("bad_words", [""]),
    ("bad_words", ["x"] * 129),
    ("bad_words", ["x" * 10_001]),
    ("prompt", [NUM_TOKENS - 1]),
    ("prompt", [NUM_TOKENS]),
    ("prompt", [-1]),
    ("prompt", [2**63]),
]


@pytest.fixture
def offline(engine: AsyncEngine) -> InputProcessor:
    """What stands at the door of LLM.generate, for the model that is served."""
    ready = engine.ready
    return InputProcessor(
        engine.tokenizer,
        ready.limits,
        vocab_size=ready.vocab_size,
        max_logprobs=ready.config.max_logprobs,
        eos_token_ids=(EOS_ID,),
    )


def offline_verdict(processor: InputProcessor, field: str, value: Any) -> tuple[str | None, str] | None:
    """The parameter at fault and the message; None: it is served."""
    fields = {"max_tokens": 16} | COMPANIONS.get(field, {}) | {field: value}
    prompt = fields.pop("prompt", "Hi")
    try:
        processor.process(prompt, SamplingParams(**fields))
    except ParameterError as error:
        return error.param, str(error)
    except RequestRejected as error:
        return None, str(error)
    return None


async def check(client, core, offline, field: str, value: Any, *, chat: bool = True) -> None:
    if field in RANGES and RANGES[field].kind is float:
        value = float(value)  # which JSON does not tell from an integer
    expected = offline_verdict(offline, field, value)
    for path in (COMPLETIONS, CHAT) if chat else (COMPLETIONS,):
        response = await post(client, path, {"max_tokens": 16} | COMPANIONS.get(field, {}) | {field: value})
        if expected is None:
            assert response.status_code == 200, (path, field, value, response.text)
            continue
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, expected[0]), (path, field, value, error)
        is_read = not error["message"].startswith(f"{field}: ")  # what is not even of the type, the reader refuses
        assert not is_read or error["message"] == expected[1]


@pytest.mark.parametrize("field", NUMERIC_FIELDS)
async def test_every_number(client, core, offline, field):
    is_chat_bool = field == "logprobs"
    for value in NUMBERS:
        if field == "max_tokens" and value > 512:
            continue  # beyond the model: Python clips it, and OpenAI's API refuses it
        await check(client, core, offline, field, value, chat=not is_chat_bool)


@pytest.mark.parametrize(("field", "value"), LISTS)
async def test_every_list(client, core, offline, field, value):
    await check(client, core, offline, field, value, chat=field != "prompt")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", NUMERIC_FIELDS)
def test_a10_python_refuses_what_json_cannot_say(field, value):
    with pytest.raises(ParameterError) as refusal:
        SamplingParams(**{field: value})
    assert refusal.value.param == field


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("n", [0, -1, 129, 10**6, 2**63, 1.0, 1.5, "3", True])
async def test_a37_n_beyond_the_limit(client, core, path, n):
    started_s = time.monotonic()
    await assert_refused(client, core, path, {"n": n}, "n")
    if n != 1:
        await assert_refused(client, core, path, {"best_of": n}, "best_of")
    assert time.monotonic() - started_s < 5.0  # nothing was made n times
    response = await post(client, path, {"n": 128, "seed": 1})
    assert len(response.json()["choices"]) == 128


async def test_a37_choices_of_all_prompts_together(client, core):
    await assert_refused(client, core, COMPLETIONS, {"prompt": ["a"] * 10_000}, "prompt")
    await assert_refused(client, core, COMPLETIONS, {"prompt": ["a"] * 9, "n": 128}, "n")
    response = await post(client, COMPLETIONS, {"prompt": ["a"] * 8, "n": 128})
    assert len(response.json()["choices"]) == 1024
