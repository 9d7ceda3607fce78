"""Frames between the two processes."""

from __future__ import annotations

import asyncio
import math
import socket
import threading

import pytest

from octavo.config import EngineConfig
from octavo.core.messages import EngineRequest, RequestOutput, StepStats, TokenLogprobs
from octavo.core.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from octavo.core.snapshot import RequestSnapshot, Snapshot
from octavo.engine import wire
from octavo.structured.vocabulary import Vocabulary

REQUEST = EngineRequest(
    request_id="req-1",
    prompt_token_ids=(0, 1, 2**31 - 1),
    sampling_params=SamplingParams(
        n=3,
        seed=-(2**63),
        stop=("a", "é"),
        stop_token_ids=(5,),
        output_kind=RequestOutputKind.DELTA,
        logprobs=2,
        prompt_logprobs=0,
        truncate_prompt_tokens=-1,
        spaces_between_special_tokens=False,
        presence_penalty=-0.5,
        logit_bias=((5, -1.5), (7, 100.0)),
        allowed_token_ids=(5, 7),
        bad_words=("no", "é"),
        structured_outputs=StructuredOutputsParams(json={"enum": ["é", 1]}),
    ),
    seed=2**64 - 1,
    eos_token_ids=(2, 3),
    bad_word_token_ids=((8,), (9, 10)),
    cache_salt="salt",
)
FRONT_MESSAGES: list[wire.FrontMessage] = [
    wire.Start(EngineConfig("model", gpu_memory_utilization=0.5)),
    wire.Add(REQUEST),
    wire.Learn(Vocabulary((b"</s>", b"\xff", b""), (0,), (0,))),
    wire.Abort("req-1"),
    wire.Abort("req-1", 2),
    wire.Inspect(),
    wire.FrontHeartbeat(),
    wire.Shutdown(),
]
OUTPUT = RequestOutput("req-1", 2, (7,), (TokenLogprobs(-math.inf, 1, ((7, -1 / 3),)),), "stop", 7, 16)
CORE_MESSAGES: list[wire.CoreMessage] = [
    wire.Phase("loading"),
    wire.Outputs((OUTPUT,), StepStats(step_s=1 / 3)),
    wire.Inspection(Snapshot((RequestSnapshot("req-1", 0, "running", 5, 4, 5, 6, 9, 0, (3, 1)),), (), ".cscs", 4)),
    wire.Rejected("req-1", "code", "why"),
    wire.Rejected("req-1", "code", "why", "field"),
    wire.Failed("why"),
    wire.Heartbeat(0.0),
]


def test_the_outputs_of_a_step_fit_into_frames_however_many_log_probabilities_they_hold(monkeypatch):
    monkeypatch.setattr(wire, "MAX_FRAME_LOGPROBS", 5)
    plain = RequestOutput("plain", 0, (7,))
    two = RequestOutput("two", 0, (7,), (TokenLogprobs(-1.0, 1, ((7, -1.0),)),))
    nine = RequestOutput("nine", 0, (7,), prompt_logprobs=(TokenLogprobs(-1.0, 1, ((7, -1.0), (8, -2.0))),) * 3)
    assert wire.split_outputs([]) == [[]]
    assert wire.split_outputs([plain] * 9 + [two, two, plain]) == [[plain] * 9 + [two, two, plain]]
    assert wire.split_outputs([two, two, two, plain, nine, plain, two, nine]) == [
        [two, two],
        [two, plain],
        [nine],
        [plain, two],
        [nine],
    ]


@pytest.fixture
def ends():
    """The engine process's channel, and the front's end of the socket pair."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield wire.CoreChannel(theirs), ours


def test_what_the_front_says_arrives_as_it_was(ends):
    channel, front = ends
    for number, message in enumerate(FRONT_MESSAGES):
        front.sendall(wire.encode_frame(message, number))
    assert channel.receive(wait=True) == FRONT_MESSAGES
    assert channel.receive(wait=False) == []


def test_what_the_core_says_arrives_as_it_was(ends):
    channel, front = ends

    async def read_all():
        reader, writer = await asyncio.open_unix_connection(sock=front)
        for message in CORE_MESSAGES:
            channel.send(message)
        received = [await wire.read_core_message(reader, number) for number in range(len(CORE_MESSAGES))]
        channel._connection.close()
        received.append(await wire.read_core_message(reader, len(CORE_MESSAGES)))
        writer.close()
        return received

    assert asyncio.run(read_all()) == [*CORE_MESSAGES, None]


def test_frames_may_come_in_any_pieces(ends):
    channel, front = ends
    data = b"".join(wire.encode_frame(message, number) for number, message in enumerate(FRONT_MESSAGES))
    received = []
    for i in range(len(data)):
        front.sendall(data[i : i + 1])
        received += channel.receive(wait=False)
    assert received == FRONT_MESSAGES


def test_waiting_ends_with_a_message_or_with_the_front(ends):
    channel, front = ends
    threading.Timer(0.05, front.sendall, [wire.encode_frame(wire.Shutdown(), 0)]).start()
    assert channel.receive(wait=True) == [wire.Shutdown()]
    assert not channel.wait_for_front_to_leave(0.0)
    front.close()
    assert channel.wait_for_front_to_leave(10.0)
    with pytest.raises(EOFError):
        channel.receive(wait=True)
    with pytest.raises(OSError):
        channel.send(wire.Heartbeat(0.0))


def test_waiting_ends_when_somebody_wakes_it(ends):
    channel, front = ends
    channel.wake()
    channel.wake()
    assert channel.receive(wait=True) == []
    threading.Timer(0.05, channel.wake).start()
    assert channel.receive(wait=True) == []
    front.sendall(wire.encode_frame(wire.Shutdown(), 0))
    channel.wake()
    assert channel.receive(wait=True) == [wire.Shutdown()]


def test_a_frame_is_bounded(ends):
    channel, front = ends
    with pytest.raises(wire.WireError, match="at most"):
        wire.encode_frame(wire.Failed("x" * (wire.MAX_FRAME_BYTES + 1)), 0)
    front.sendall(wire.HEAD.pack(wire.MAX_FRAME_BYTES + 1, 0))
    with pytest.raises(wire.WireError, match="at most"):  # at once, not after so many bytes
        channel.receive(wait=True)


def test_only_messages_are_decoded(ends):
    channel, front = ends
    front.sendall(wire.encode_frame(wire.Failed("not a message of the front"), 0))
    with pytest.raises(wire.WireError, match="no message"):
        channel.receive(wait=True)


def test_a_frame_that_is_lost_is_missed(ends):
    channel, front = ends
    front.sendall(wire.encode_frame(wire.Abort("a"), 0) + wire.encode_frame(wire.Abort("c"), 2))
    with pytest.raises(wire.WireError, match="frame 2 came where 1 was due"):
        channel.receive(wait=True)
