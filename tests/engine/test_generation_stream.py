from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.outputs import CompletionOutput, GenerationOutput, Logprob

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def make_stream(*names: str, kind: RequestOutputKind = RequestOutputKind.DELTA) -> tuple[GenerationStream, list[str]]:
    requests = [EngineRequest(name, (1, 2), SamplingParams(output_kind=kind), seed=0) for name in names]
    aborted: list[str] = []
    return GenerationStream(requests, aborted.append), aborted


def delta(name: str, text: str, index: int = 0, *, finished: bool = False, has_logprobs: bool = False):
    logprobs = [{ord(text): Logprob(-1.0, 1, text)}] if has_logprobs else None
    finish_reason = "stop" if finished else None
    choice = CompletionOutput(index, text, [ord(text)], None, logprobs, finish_reason)
    return GenerationOutput(name, None, [1, 2], [choice], finished)


async def test_whoever_keeps_up_gets_each_output():
    stream, _ = make_stream("r")
    taken = []
    for text in "abc":
        stream.put(delta("r", text, finished=text == "c"))
        taken.append(await anext(stream))
    assert ["".join(choice.text for choice in output.outputs) for output in taken] == ["a", "b", "c"]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@given(
    puts=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 1), st.booleans()), max_size=40),
    has_logprobs=st.booleans(),
)
async def test_however_slow_the_reader_the_pieces_come_to_the_same(puts, has_logprobs):
    """Each put is a letter of one choice; where the flag says so, the reader takes what is there."""
    stream, _ = make_stream("r")
    expected: dict[int, str] = {0: "", 1: ""}
    got: dict[int, str] = {0: "", 1: ""}
    num_tokens = num_pending = 0

    async def take() -> None:
        nonlocal num_tokens
        output = await anext(stream)
        for choice in output.outputs:
            assert choice.token_ids == [ord(letter) for letter in choice.text]
            assert (choice.logprobs is not None) == has_logprobs
            if choice.logprobs is not None:
                assert [next(iter(entry)) for entry in choice.logprobs] == choice.token_ids
            got[choice.index] += choice.text
            num_tokens += len(choice.token_ids)

    for letter, index, is_read in puts:
        stream.put(delta("r", letter, index, has_logprobs=has_logprobs))
        expected[index] += letter
        num_pending = 1
        if is_read:
            await take()
            num_pending = 0
    if num_pending:
        await take()
    assert got == expected and num_tokens == len(puts)


async def test_what_is_cumulative_is_replaced():
    stream, _ = make_stream("r", kind=RequestOutputKind.CUMULATIVE)
    for text in "ab":
        stream.put(delta("r", text))
    assert [choice.text for choice in (await anext(stream)).outputs] == ["b"]


async def test_requests_stay_apart_and_in_the_order_of_their_news():
    stream, aborted = make_stream("a", "b")
    for name, text in (("b", "1"), ("a", "2"), ("b", "3")):
        stream.put(delta(name, text, finished=text == "3"))
    first, second = await anext(stream), await anext(stream)
    assert (first.request_id, first.outputs[0].text, first.finished) == ("b", "13", True)
    assert (second.request_id, second.outputs[0].text) == ("a", "2")
    stream.close()
    assert aborted == ["a"]


async def test_an_error_comes_after_what_came_before_it():
    stream, _ = make_stream("r")
    stream.put(delta("r", "a"))
    stream.fail(RuntimeError("gone"))
    await stream.wait_until_begun()
    assert (await anext(stream)).outputs[0].text == "a"
    with pytest.raises(RuntimeError, match="gone"):
        await anext(stream)


async def test_the_beginning_can_be_awaited_and_is_not_lost():
    stream, _ = make_stream("r")
    output = replace(delta("r", "a"), num_cached_tokens=3)
    stream.put(output)
    await stream.wait_until_begun()
    await stream.wait_until_begun()
    assert await anext(stream) == output
    stream.fail(RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        await stream.wait_until_begun()
