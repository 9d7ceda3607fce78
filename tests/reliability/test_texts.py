"""Cases A32 and A36 of the reliability list: long texts and slow templates hold up nobody else.

What must not take long is tested by what comes first: the other work is held until the test has seen the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import SamplingParams
from octavo.engine.text_workers import LONG_TEXT_CHARS, NUM_THREADS
from octavo.engine.tokenizer import Tokenizer
from tests.reliability.bodies import CHAT, COMPLETIONS, assert_refused, post

pytestmark = pytest.mark.anyio

LONG_TEXT = "x" * (LONG_TEXT_CHARS + 1)
TRUNCATING = SamplingParams(max_tokens=1, truncate_prompt_tokens=5)  # so that the text is tokenized, not refused


class Gate:
    """Holds whatever calls `hold` until it is opened, and counts how many are held."""

    def __init__(self) -> None:
        self.num_held = 0
        self.max_held = 0
        self._opened = threading.Event()
        self._lock = threading.Lock()

    def hold(self) -> None:
        with self._lock:
            self.num_held += 1
            self.max_held = max(self.max_held, self.num_held)
        assert self._opened.wait(60)
        with self._lock:
            self.num_held -= 1

    def open(self) -> None:
        self._opened.set()

    async def wait_until_full(self) -> None:
        while self.num_held < NUM_THREADS:
            await asyncio.sleep(0.001)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()  # a test that failed must not leave threads behind that wait


async def assert_all_else_goes_on(client):
    for path in ("/health", "/v1/models"):
        assert (await client.get(path)).status_code == 200
    assert (await post(client, COMPLETIONS, {})).status_code == 200


async def test_a32_long_texts_are_tokenized_a_few_at_a_time_and_nobody_waits(client, engine, gate, monkeypatch):
    encode = Tokenizer.encode

    def slowly_encode(self, text, **options):
        if len(text) >= LONG_TEXT_CHARS:
            gate.hold()
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", slowly_encode)
    asking = [asyncio.create_task(engine.submit([LONG_TEXT], TRUNCATING)) for _ in range(3 * NUM_THREADS)]
    many_short = [LONG_TEXT[:100]] * 99 + [LONG_TEXT[:101]]  # long together
    asking.append(asyncio.create_task(engine.submit(many_short, TRUNCATING)))
    await gate.wait_until_full()
    await assert_all_else_goes_on(client)
    assert (await post(client, CHAT, {})).status_code == 200
    assert not any(task.done() for task in asking)
    gate.open()
    for stream in await asyncio.gather(*asking):
        stream.close()
    assert gate.max_held == NUM_THREADS


async def test_a32_leaving_while_the_text_waits_to_be_tokenized(engine, gate, monkeypatch):
    encode = Tokenizer.encode
    texts = []

    def slowly_encode(self, text, **options):
        texts.append(text)
        gate.hold()
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", slowly_encode)
    first = [asyncio.create_task(engine.submit([LONG_TEXT], TRUNCATING)) for _ in range(NUM_THREADS)]
    await gate.wait_until_full()
    leaving = asyncio.create_task(engine.submit(["y" + LONG_TEXT], TRUNCATING))
    await asyncio.sleep(0.01)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.open()
    for stream in await asyncio.gather(*first):
        stream.close()
    assert texts == [LONG_TEXT] * NUM_THREADS  # nobody tokenized for the one that had left
    assert await engine.drain(timeout_s=5)


async def test_a32_a_text_that_is_too_long_however_it_is_cut_is_not_tokenized(client, core, monkeypatch):
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("it was tokenized"))
    for size in (4 * LONG_TEXT_CHARS, 5_000_000):
        for path, body in (
            (COMPLETIONS, {"prompt": "x" * size}),
            (COMPLETIONS, {"prompt": ["Hi", "é" * (size // 4)]}),
            (CHAT, {"messages": [{"role": "user", "content": "x" * size}]}),
        ):
            response = await post(client, path, body)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert "maximum context length is 512 tokens" in error["message"]
    assert not core.requests


async def test_a32_a_body_of_27_mb_is_not_even_read(client, core):
    response = await post(client, COMPLETIONS, b'{"prompt": "' + b"x" * 27_000_000 + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_a32_fifty_requests_with_bad_words_at_once(client, core):
    async def ask(i: int) -> None:
        body = {"prompt": f"Request {i}", "bad_words": [f"word{i}", "no"], "max_tokens": 4}
        response = await post(client, COMPLETIONS, body)
        assert response.status_code == 200, response.text

    await asyncio.gather(*map(ask, range(50)))
    assert len({request.bad_word_token_ids for request in core.requests}) == 50


async def test_a36_a_slow_template_holds_up_no_one(client, gate, monkeypatch):
    render = Tokenizer.apply_chat_template

    def slowly_render(self, messages, **options):
        gate.hold()
        return render(self, messages, **options)

    monkeypatch.setattr(Tokenizer, "apply_chat_template", slowly_render)
    asking = [asyncio.create_task(post(client, CHAT, {})) for _ in range(3 * NUM_THREADS)]
    await gate.wait_until_full()
    await assert_all_else_goes_on(client)
    assert not any(task.done() for task in asking)
    gate.open()
    assert {response.status_code for response in await asyncio.gather(*asking)} == {200}
    assert gate.max_held == NUM_THREADS


async def test_truncation_saves_a_text_that_is_too_long(engine, core):
    with pytest.raises(RequestRejected, match="at least"):
        await engine.submit([LONG_TEXT], SamplingParams())
    stream = await engine.submit([LONG_TEXT], TRUNCATING)
    stream.close()
    assert len(core.requests[0].prompt_token_ids) == 5


async def test_a24_many_ids_are_refused_by_name(client, core):
    for bad in (-1, 10**6):
        await assert_refused(client, core, COMPLETIONS, {"prompt": [5] * 100_000 + [bad]}, "prompt")
