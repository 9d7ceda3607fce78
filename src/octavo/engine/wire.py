"""What the front process and the engine process say to each other, and how it is put into bytes.

A frame is a length, its number in its direction (4 bytes each, little-endian) and that many bytes of msgpack. The two
ends share a socket pair, which has no name: nobody else can connect, and an end of file means that the other process is
gone. Decoding is typed, so a frame becomes one of the messages below or an error; one that is lost is missed when the
next one comes, and a heartbeat comes soon, whichever way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from octavo.config import EngineConfig
from octavo.core.admission import AdmissionLimits
from octavo.core.messages import EngineRequest, RequestOutput, StepStats
from octavo.core.snapshot import Snapshot
from octavo.engine.memory import MemoryPlan
from octavo.structured.vocabulary import Vocabulary

MAX_FRAME_BYTES = 64 << 20  # a prompt of a million tokens takes 5 MB
MAX_FRAME_LOGPROBS = 1 << 20  # of 15 bytes at most; a single output has no more than these and a vocabulary
HEAD = struct.Struct("<II")  # bytes of the message, number of the frame modulo NUM_NUMBERS
NUM_NUMBERS = 1 << 32
HEARTBEAT_S = 0.5  # between two signs of life, of either process
RECEIVE_BYTES = 1 << 16


class WireError(Exception):
    """A frame that is too large or is no message."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """front -> core: the first message, what engine to build."""

    config: EngineConfig


class Add(msgspec.Struct, frozen=True, tag=True):
    """front -> core: serve this request."""

    request: EngineRequest


class Learn(msgspec.Struct, frozen=True, tag=True):
    """front -> core: the model's tokens; before the first request that has a grammar."""

    vocabulary: Vocabulary


class Abort(msgspec.Struct, frozen=True, tag=True):
    """front -> core: stop the request, or only its choice `index`. Unknown ones are ignored."""

    request_id: str
    index: int | None = None


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """front -> core: send an Inspection."""


class FrontHeartbeat(msgspec.Struct, frozen=True, tag=True):
    """front -> core: nothing new; by its number, whether all before it has arrived."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """front -> core: leave."""


class Phase(msgspec.Struct, frozen=True, tag=True):
    """core -> front: what the start is busy with."""

    name: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """core -> front: requests are welcome. `config` is resolved: no "decide for me" is left in it."""

    limits: AdmissionLimits
    config: EngineConfig
    memory: MemoryPlan
    vocab_size: int  # token ids that exist
    eos_token_ids: tuple[int, ...]
    sampling_defaults: dict[str, int | float]


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """core -> front: what one step brought."""

    outputs: tuple[RequestOutput, ...]
    stats: StepStats


class Inspection(msgspec.Struct, frozen=True, tag=True):
    """core -> front: the requests and the pool between two steps, once for each Inspect."""

    snapshot: Snapshot
    table_sizes: dict[str, int] = {}  # entries of each table that has some for a request


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """core -> front: the request cannot be served; `code` and `param` are those of RequestRejected."""

    request_id: str
    code: str
    message: str
    param: str | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """core -> front: the engine cannot go on; the process leaves after this."""

    message: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """core -> front: the process is alive, and its loop has been in the same step for `step_s` (0: between steps)."""

    step_s: float


FrontMessage = Start | Add | Learn | Abort | Inspect | FrontHeartbeat | Shutdown
CoreMessage = Phase | Ready | Outputs | Inspection | Rejected | Failed | Heartbeat

Message = TypeVar("Message")

_encoder = msgspec.msgpack.Encoder()
_front_decoder: msgspec.msgpack.Decoder[FrontMessage] = msgspec.msgpack.Decoder(FrontMessage)
_core_decoder: msgspec.msgpack.Decoder[CoreMessage] = msgspec.msgpack.Decoder(CoreMessage)


def split_outputs(outputs: Sequence[RequestOutput]) -> list[list[RequestOutput]]:
    """A step's outputs in parts, one at least, that each fit into a frame: log-probabilities may be very many."""
    parts: list[list[RequestOutput]] = [[]]
    num_logprobs = 0
    for output in outputs:
        size = sum(1 + len(entry.top) for entry in output.logprobs + output.prompt_logprobs)
        if parts[-1] and num_logprobs + size > MAX_FRAME_LOGPROBS:
            parts.append([])
            num_logprobs = 0
        parts[-1].append(output)
        num_logprobs += size
    return parts


def encode_frame(message: FrontMessage | CoreMessage, number: int) -> bytes:
    """The frame of a message, the `number`-th in its direction. Raises WireError beyond MAX_FRAME_BYTES."""
    payload = _encoder.encode(message)
    _check_length(len(payload))
    return HEAD.pack(len(payload), number % NUM_NUMBERS) + payload


async def read_core_message(reader: asyncio.StreamReader, number: int) -> CoreMessage | None:
    """The `number`-th message of the engine process; None when it is gone. Raises WireError for anything else."""
    try:
        num_bytes = _num_message_bytes(await reader.readexactly(HEAD.size), number)
        return _decode(_core_decoder, await reader.readexactly(num_bytes))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class CoreChannel:
    """The engine process's end of the socket pair: one thread reads, any may write."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()
        self._num_received = 0
        self._num_sent = 0
        self._send_lock = threading.Lock()
        self._wakeups, self._waker = os.pipe()

    def send(self, message: CoreMessage) -> None:
        """Write the message, waiting while the socket is full. Raises OSError when the front process is gone."""
        with self._send_lock:
            self._connection.sendall(encode_frame(message, self._num_sent))
            self._num_sent += 1

    def receive(self, *, wait: bool) -> list[FrontMessage]:
        """Every message that has arrived; with `wait` at least one, unless somebody calls `wake`.

        Raises EOFError when the front process is gone.
        """
        messages: list[FrontMessage] = []
        while readable := self._readable(timeout_s=None if wait and not messages else 0.0):
            if self._wakeups in readable:
                os.read(self._wakeups, RECEIVE_BYTES)
                wait = False
            if self._connection.fileno() not in readable:
                continue
            chunk = self._connection.recv(RECEIVE_BYTES)
            if not chunk:
                raise EOFError("the front process is gone")
            self._received += chunk
            messages += self._whole_messages()
        return messages

    def wait_for_shutdown(self, timeout_s: float) -> None:
        """Wait until the front says Shutdown or leaves, however garbled all else is; at most `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        shutdown = _encoder.encode(Shutdown())
        with contextlib.suppress(OSError):  # the front has its own troubles
            while (left_s := deadline_s - time.monotonic()) > 0:
                self._connection.settimeout(left_s)
                chunk = self._connection.recv(RECEIVE_BYTES)
                if not chunk or shutdown in chunk:
                    return

    def wake(self) -> None:
        """End a `receive` that waits, or the next one that would. Any thread may call it."""
        os.write(self._waker, b"!")

    def wait_for_front_to_leave(self, timeout_s: float) -> bool:
        """Whether the front process closed its end within `timeout_s`. Reads nothing, so any thread may call it."""
        poll = select.poll()
        poll.register(self._connection, 0)  # no event asked for: only the hang-up is reported
        return bool(poll.poll(timeout_s * 1000))

    def _readable(self, timeout_s: float | None) -> list[int]:
        return select.select([self._connection.fileno(), self._wakeups], [], [], timeout_s)[0]

    def _whole_messages(self) -> list[FrontMessage]:
        messages = []
        while len(self._received) >= HEAD.size:
            end = HEAD.size + _num_message_bytes(self._received[: HEAD.size], self._num_received)
            if len(self._received) < end:
                break
            messages.append(_decode(_front_decoder, bytes(self._received[HEAD.size : end])))
            self._num_received += 1
            del self._received[:end]
        return messages


def _num_message_bytes(head: bytes | bytearray, number: int) -> int:
    """How long the message is that follows. Raises WireError if it is too long, or not the `number`-th."""
    num_bytes, found = HEAD.unpack(head)
    _check_length(num_bytes)
    if found != number % NUM_NUMBERS:
        raise WireError(f"frame {found} came where {number} was due: messages are lost")
    return int(num_bytes)


def _check_length(num_bytes: int) -> None:
    if num_bytes > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {num_bytes} bytes; at most {MAX_FRAME_BYTES} are allowed: send a shorter prompt")


def _decode(decoder: msgspec.msgpack.Decoder[Message], payload: bytes) -> Message:
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise WireError(f"a frame of {len(payload)} bytes is no message: {error}") from error
