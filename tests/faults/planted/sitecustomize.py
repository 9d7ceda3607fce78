"""Python imports this at its start where PYTHONPATH leads here: faults that strike a process of octavo's from within.

FAULT says which, in which process; it strikes at the first step, or message, after the file FAULT_FILE has come to be.
"""

import os
import sys
import time

STEP_S = 0.02  # at least, so that the engine is never far ahead of those who read its answers
ENGINE = "octavo.engine.core_process"


def is_due() -> bool:
    return os.path.exists(os.environ["FAULT_FILE"])


def slow_down() -> None:
    from octavo.core.engine_core import EngineCore

    step = EngineCore.step

    def slow_step(self: EngineCore) -> object:
        time.sleep(STEP_S)
        return step(self)

    EngineCore.step = slow_step  # type: ignore[method-assign,assignment]


def fail_in_a_step(error: Exception) -> None:
    from octavo.core.engine_core import EngineCore

    step = EngineCore.step

    def failing_step(self: EngineCore) -> object:
        if is_due():
            raise error
        return step(self)

    EngineCore.step = failing_step  # type: ignore[method-assign,assignment]


def garble_messages() -> None:
    from octavo.engine import wire

    encode = wire.encode_frame

    def garbled(message: object, number: int) -> bytes:
        frame = encode(message, number)  # type: ignore[arg-type]
        return frame[:8] + bytes(byte ^ 0x55 for byte in frame[8:]) if is_due() else frame

    wire.encode_frame = garbled


def lose_one_message() -> None:
    from octavo.engine import wire

    encode = wire.encode_frame
    lost: list[object] = []

    def losing(message: object, number: int) -> bytes:
        is_heartbeat = isinstance(message, wire.Heartbeat | wire.FrontHeartbeat)  # what would be no loss
        if is_due() and not lost and not is_heartbeat:
            lost.append(message)
            return b""
        return encode(message, number)  # type: ignore[arg-type]

    wire.encode_frame = losing


def strike(fault: str) -> None:
    is_engine = ENGINE in sys.orig_argv
    if is_engine:
        slow_down()
    if fault == "exception in a step" and is_engine:
        fail_in_a_step(RuntimeError("a planted fault"))
    elif fault == "no memory in a step" and is_engine:
        fail_in_a_step(MemoryError("a planted lack of memory"))
    elif (fault == "garbled by the engine" and is_engine) or (fault == "garbled by the front" and not is_engine):
        garble_messages()
    elif (fault == "lost by the engine" and is_engine) or (fault == "lost by the front" and not is_engine):
        lose_one_message()


if "FAULT" in os.environ:
    strike(os.environ["FAULT"])
