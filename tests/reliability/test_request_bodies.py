"""Faults that bodies of requests have caused in other engines; each number is a case of the reliability list.

"Refused" is a 400 whose body is valid JSON and names the field, before anything has reached the engine.
"""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.sampling_params import MAX_LOGIT_BIAS
from tests.engine.tiny_model import NUM_TOKENS
from tests.reliability.bodies import CHAT, COMPLETIONS, assert_refused, post
from tests.reliability.staggered import Arrival, open_engine, params

pytestmark = pytest.mark.anyio

LAST_ID = NUM_TOKENS - 1  # of the tokenizer; the model's logits go to 319

FLOAT_FIELDS = [
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("field", [*FLOAT_FIELDS, "logit_bias"])
async def test_a10_nan_and_infinity_are_no_numbers(client, core, path, field):
    required = b'"prompt": "Hi"' if path == COMPLETIONS else b'"messages": [{"role": "user", "content": "Hi"}]'
    is_map = field == "logit_bias"
    for literal in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"):
        given = b'{"5": ' + literal + b"}" if is_map else literal
        body = b"{" + required + b', "' + field.encode() + b'": ' + given + b"}"
        await assert_refused(client, core, path, body, None)  # it is not even JSON
    bad_values: list[Any] = ["nan", "1", True, [], {}, 10**400]
    for value in bad_values:
        await assert_refused(client, core, path, {field: {"5": value} if is_map else value}, field)
    assert (await post(client, path, {field: None})).status_code == 200
    assert getattr(core.requests[-1].sampling_params, field) == getattr(params(), field)  # null is the default


@pytest.mark.parametrize("key", ["-1", f"{NUM_TOKENS}", f"{NUM_TOKENS + 1}", "319", f"{2**31}", f"{2**63}", "9" * 5000])
async def test_a11_a_bias_beyond_the_vocabulary(client, core, key):
    for path in (CHAT, COMPLETIONS):
        await assert_refused(client, core, path, {"logit_bias": {"5": 1, key: 1}}, "logit_bias")


@pytest.mark.parametrize("key", ["abc", "", " 5", "5.0", "05", "+5", "0x5", "٥", "1e2", "true", "x" * 10**5])
async def test_a11_a_key_that_is_no_token_id(client, core, key):
    await assert_refused(client, core, CHAT, {"logit_bias": {key: 1}}, "logit_bias")


async def test_a11_values_and_their_number(client, core):
    bad_values: list[Any] = [100.1, -100.1, 1e9, "1", None, True, []]
    for value in bad_values:
        await assert_refused(client, core, CHAT, {"logit_bias": {"5": value}}, "logit_bias")
    for bad in ({str(i): 1 for i in range(10_000)}, {str(i): 1 for i in range(MAX_LOGIT_BIAS + 1)}, [5], "5"):
        await assert_refused(client, core, CHAT, {"logit_bias": bad}, "logit_bias")
    for bias in (0, 100, -100.0):
        response = await post(client, CHAT, {"logit_bias": {"0": bias, str(LAST_ID): bias}})
        assert response.status_code == 200
        assert core.requests[-1].sampling_params.logit_bias == ((0, float(bias)), (LAST_ID, float(bias)))


BAD_IDS: list[Any] = [-1, NUM_TOKENS, 319, 320, 2**31, 2**32, 2**63, 2**64, 1.5, 5.0, "5", True, None, [5]]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_a24_prompt_ids_outside_the_vocabulary(client, core, bad):
    for ids in ([5, bad], [bad, 5], [5, 6, bad, 7]):
        await assert_refused(client, core, COMPLETIONS, {"prompt": ids}, "prompt")
        await assert_refused(client, core, COMPLETIONS, {"prompt": [[5], ids]}, "prompt")
    await assert_refused(client, core, COMPLETIONS, {"prompt": [[bad]]}, "prompt")
    assert (await post(client, COMPLETIONS, {"prompt": [0, LAST_ID]})).status_code == 200


async def test_a24_the_last_id_is_served_and_disturbs_nobody(tiny_model):
    plain = Arrival("A plain request.", params(temperature=0.0))
    with open_engine(tiny_model) as engine:
        expected = engine.serve_alone(plain)
        edge, beside = engine.serve(Arrival([LAST_ID] * 20, params(temperature=0.0)), plain)
        assert beside == expected
        assert len(edge.token_ids) == 32


COUNTS = [-2, -1, 0, 1, 20, 21, NUM_TOKENS, NUM_TOKENS + 1, 10**6, 2**31, 2**63]


@pytest.mark.parametrize("count", COUNTS)
async def test_a30_more_log_probabilities_than_there_are_tokens(client, core, count):
    for path, fields, param in (
        (COMPLETIONS, {"logprobs": count}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": count}, "top_logprobs"),
    ):
        if 0 <= count <= 20:
            response = await post(client, path, fields)
            assert response.status_code == 200
            assert core.requests[-1].sampling_params.logprobs == count
        else:
            await assert_refused(client, core, path, fields, param)
        if 0 <= count <= 20:
            assert (await post(client, path, {"prompt_logprobs": count})).status_code == 200
            assert core.requests[-1].sampling_params.prompt_logprobs == count
        else:
            await assert_refused(client, core, path, {"prompt_logprobs": count}, "prompt_logprobs")
        await assert_refused(client, core, path, {"prompt_logprobs": count, "stream": True}, "prompt_logprobs")
    streamed = {"logprobs": True, "top_logprobs": count, "stream": True}
    assert (await post(client, CHAT, streamed)).status_code == (200 if 0 <= count <= 20 else 400)


async def test_every_field_about_logits_reaches_the_engine(client, core):
    fields = {
        "presence_penalty": 0.5,
        "frequency_penalty": -2,
        "repetition_penalty": 1.25,
        "allowed_token_ids": [5, LAST_ID],
        "bad_words": ["no", "!"],
    }
    for path in (CHAT, COMPLETIONS):
        response = await post(client, path, {**fields, "logit_bias": {"7": 1, "8": -2.5}})
        assert response.status_code == 200, response.text
        request = core.requests[-1]
        expected = params(**fields, logit_bias=((7, 1.0), (8, -2.5)))
        for name in (*fields, "logit_bias"):
            assert getattr(request.sampling_params, name) == getattr(expected, name), name
        assert request.bad_word_token_ids == ((ord("n") + 3, ord("o") + 3), (ord("!") + 3,))
