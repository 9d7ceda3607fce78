"""AsyncEngine over a scripted engine process."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import ParameterError, RequestOutputKind, SamplingParams
from octavo.engine import async_engine, wire
from octavo.engine.engine_status import EngineState, EngineUnavailableError
from octavo.engine.heartbeat_watch import HeartbeatWatch
from tests.engine.tiny_model import byte_id
from tests.server.scripted_core import TEXT

pytestmark = pytest.mark.anyio

DELTA = SamplingParams(max_tokens=None, output_kind=RequestOutputKind.DELTA, seed=1)


async def collect(outputs):
    return [output async for output in outputs]


async def test_generate(engine, core):
    outputs = await collect(engine.generate("Hi", DELTA))
    assert "".join(output.outputs[0].text for output in outputs) == TEXT
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert not core.aborted


async def test_closing_or_cancelling_aborts_every_choice(engine, core):
    core.is_holding = True
    params = SamplingParams(n=3, seed=1)
    asking = asyncio.create_task(collect(engine.generate("Hi", params)))
    while not core.requests:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with aclosing(engine.generate("Hi", DELTA)) as outputs:
        asking = asyncio.ensure_future(anext(outputs))
        await asyncio.sleep(0.01)
        core.say_outputs(core.script(core.requests[1])[0])
        await asking
    assert core.aborted == [request.request_id for request in core.requests]
    assert [message.index for message in core.sent if isinstance(message, wire.Abort)] == [None, None]


async def test_all_prompts_or_none(engine, core):
    with pytest.raises(ParameterError):
        await engine.submit(["Hi", [10**6]], DELTA)
    with pytest.raises(RequestRejected):
        await engine.submit(["Hi", "x" * 10**5], DELTA)
    assert not core.requests
    assert await engine.drain(timeout_s=1)


async def test_a_long_text_does_not_stop_the_loop(engine, core):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    stream = await engine.submit(["x" * 300_000], SamplingParams(truncate_prompt_tokens=9, seed=1))
    ticking.cancel()
    stream.close()
    assert ticks > 8000  # 3000 while a library keeps the interpreter to itself, 25000 else
    assert core.requests[0].prompt_token_ids == (byte_id(ord("x")),) * 9


async def test_the_prompt_of_a_conversation_is_a_text(engine, core):
    prompt = await engine.texts.render_chat([{"role": "user", "content": "Hi"}])
    assert prompt == {"prompt": "user: Hi\nassistant: ", "add_special_tokens": False}


async def test_a_refusal_of_the_core_ends_the_stream(engine, core):
    core.is_holding = True
    asking = asyncio.create_task(collect(engine.generate("Hi", DELTA)))
    while not core.requests:
        await asyncio.sleep(0)
    core.say(wire.Rejected(core.requests[0].request_id, "code", "why"))
    with pytest.raises(RequestRejected, match="why") as caught:
        await asking
    assert caught.value.code == "code"


async def test_a_start_that_fails(loading_engine, core):
    core.say(wire.Failed("no memory is left"))
    core.kill()
    with pytest.raises(EngineUnavailableError, match="no memory is left"):
        await loading_engine.wait_until_ready()


async def test_nothing_before_the_start_or_after_the_end(loading_engine, core):
    with pytest.raises(EngineUnavailableError) as caught:
        await loading_engine.submit(["Hi"], DELTA)
    assert caught.value.state is EngineState.LOADING
    core.become_ready()
    await loading_engine.wait_until_ready()
    core.is_holding = True
    asking = asyncio.create_task(collect(loading_engine.generate("Hi", DELTA)))
    await asyncio.sleep(0.01)
    await loading_engine.close()
    await loading_engine.close()
    for ended in (asking, loading_engine.submit(["Hi"], DELTA), loading_engine.wait_until_ready()):
        with pytest.raises(EngineUnavailableError) as caught:
            await ended
        assert caught.value.state is EngineState.DEAD


async def test_a_process_that_stands_still_is_ended(engine, core, monkeypatch):
    monkeypatch.setattr(wire, "HEARTBEAT_S", 0.01)
    core.say(wire.Heartbeat(0.0))
    watch = HeartbeatWatch(core, engine._life)  # the one that runs sleeps for seconds
    engine._tasks.append(asyncio.create_task(watch.keep()))
    while engine.status.state is not EngineState.DEAD:
        await asyncio.sleep(0.01)
    assert "no sign of life" in engine.status.message


async def test_a_step_that_never_ends_is_ended(engine, core):
    core.say(wire.Heartbeat(async_engine.MAX_STEP_S))
    await asyncio.sleep(0.01)
    engine.check_ready()
    core.say(wire.Heartbeat(async_engine.MAX_STEP_S + 1))
    while engine.status.state is not EngineState.DEAD:
        await asyncio.sleep(0)
    assert "a step has taken" in engine.status.message


async def test_clients_have_their_turn_however_much_the_engine_says(engine, core, monkeypatch):
    await asyncio.sleep(10 * async_engine.MAX_TURN_S)  # no turn is under way any more
    monkeypatch.setattr(async_engine, "MAX_TURN_S", 0.0)
    for _ in range(100):
        core.say(wire.Heartbeat(0.0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not core._inbox.empty()
