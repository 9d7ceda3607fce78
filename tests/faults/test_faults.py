"""Faults of every kind, in every process, at every moment: each has one end, and nobody is left hanging.

Whatever happens to the engine, its streams end with an error, new requests get 503 or no connection, and the server
leaves with status 1 and says why; what happens to the server ends the engine. `make faults` runs all, `make test`
those of a busy server. Faults that a process must do to itself are in planted/sitecustomize.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import ServerProcess, is_running, until

PLANTED = Path(__file__).parent / "planted"
IS_FULL = "FAULTS" in os.environ
MOMENTS = ("loading", "idle", "busy") if IS_FULL else ("busy",)
STOP_S = 20.0 if IS_FULL else 6.0  # longer than an engine may be silent
NUM_CLIENTS = 3
PATIENCE_S = 40.0  # 5 s, or 20 while it starts, on a machine that has other things to do
NUM_CHOICES = 16
LONG = {"prompt": "Once", "max_tokens": 480, "ignore_eos": True, "n": NUM_CHOICES, "stream": True}
SHORT = {"prompt": "Once", "max_tokens": 8, "temperature": 0}


class Fault:
    """A server at one of MOMENTS, and what can be done to it."""

    def __init__(self, server: ServerProcess, moment: str, fault_file: Path) -> None:
        self.server = server
        self.moment = moment
        self._fault_file = fault_file
        until(lambda: len(server.engine_process_ids()) == 1)
        if moment != "loading":
            server.wait_until_ready()
        [self.engine_id] = server.engine_process_ids()
        self.streams = self._open_streams() if moment == "busy" else []

    def strike(
        self, number: signal.Signals | None = None, process_id: int = 0, *, num_clients: int = NUM_CLIENTS
    ) -> None:
        """Send a signal, or let what was planted happen; that needs a step or a message, for which somebody asks."""
        if number is not None:
            os.kill(process_id, number)
            return
        self._fault_file.touch()
        if self.moment == "loading":
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                self.server.wait_until_ready()
        if self.moment == "loading" and not self.server.engine_process_ids():  # it did not even get ready
            return
        streams = self._open_streams(num_clients, has_begun=False)
        self.streams = self.streams or streams  # where some run already, these may find nobody any more

    def _open_streams(self, num_clients: int = NUM_CLIENTS, *, has_begun: bool = True) -> list[Future[list[str]]]:
        pool = ThreadPoolExecutor(num_clients)
        futures = [pool.submit(_read_stream, self.server) for _ in range(num_clients)]
        pool.shutdown(wait=False)
        if has_begun:
            until(lambda: self.server.load()["num_running"] == num_clients * NUM_CHOICES)
        return futures


def _read_stream(server: ServerProcess) -> list[str]:
    with server.client.stream("POST", "/v1/completions", json=LONG) as response:
        return [line.removeprefix("data: ") for line in response.iter_lines() if line]


@pytest.fixture
def fault(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path, monkeypatch) -> Iterator[Fault]:
    kind, moment, options = request.param
    monkeypatch.setenv("PYTHONPATH", str(PLANTED))
    monkeypatch.setenv("FAULT", kind)
    monkeypatch.setenv("FAULT_FILE", str(tmp_path / "now"))
    with ServerProcess(tiny_model, *options) as server:
        fault = Fault(server, moment, tmp_path / "now")
        yield fault
    until(
        lambda: not is_running(fault.engine_id), PATIENCE_S
    )  # it leaves when the server is gone, however that came about


def at_every_moment(*kinds: str, moments: tuple[str, ...] = MOMENTS, options: tuple[str, ...] = ()):
    cases = [(kind, moment, options) for kind in kinds for moment in moments]
    return pytest.mark.parametrize("fault", cases, ids=[f"{kind}-{moment}" for kind, moment, _ in cases], indirect=True)


def assert_all_end(fault: Fault, cause: str) -> None:
    """Every stream ends with an error, and the server with status 1 and the cause in the last line of its log."""
    for stream in fault.streams:
        try:
            lines = stream.result(PATIENCE_S)
        except httpx.TransportError:
            assert fault.moment != "busy"  # else it came too late
            continue
        is_refused = len(lines) == 1  # with 503: it came late
        assert not (is_refused and fault.moment == "busy") and (is_refused or lines[-1] == "[DONE]")
        error = json.loads(lines[0 if is_refused else -2])["error"]
        assert error["code"] == "engine_dead" and cause in error["message"]
    assert fault.server.process.wait(PATIENCE_S) == 1
    fault.server.wait()
    assert cause in fault.server.log[-1]


@at_every_moment("killed")
def test_the_engine_is_killed(fault):
    fault.strike(signal.SIGKILL, fault.engine_id)
    assert_all_end(fault, "SIGKILL")


@at_every_moment("stopped")
def test_the_engine_stands_still(fault):
    fault.strike(signal.SIGSTOP, fault.engine_id)
    assert_all_end(fault, "no sign of life")


@at_every_moment("exception in a step")
def test_a_step_raises(fault):
    fault.strike()
    assert_all_end(fault, "a planted fault")


@at_every_moment("no memory in a step")
def test_a_step_gets_no_memory(fault):
    fault.strike()
    assert_all_end(fault, "a planted lack of memory")


@at_every_moment("garbled by the engine", "garbled by the front")
def test_a_message_is_garbled(fault):
    fault.strike()
    assert_all_end(fault, "is no message")


@at_every_moment("lost by the engine", "lost by the front")
def test_a_message_is_lost(fault):
    """Which is noticed with the next one; where nobody else comes, that is a heartbeat."""
    fault.strike(num_clients=1)
    assert_all_end(fault, "messages are lost")


@at_every_moment("exception in a step", moments=("idle",), options=("--log-format", "json"))
def test_every_line_of_a_log_for_machines_is_an_object(fault):
    """Those of the engine process, too: a traceback is in one of them, the cause in the last."""
    fault.strike()
    assert fault.server.wait() == 1
    first = next(place for place, line in enumerate(fault.server.log) if line.startswith("ready after"))
    lines = [json.loads(line) for line in fault.server.log[first + 1 :]]
    [failure] = [line for line in lines if "exception" in line]
    assert failure["logger"] == "octavo.engine" and "Traceback" in failure["exception"]
    assert "a planted fault" in lines[-1]["message"]


@at_every_moment("killed")
def test_the_server_is_killed(fault):
    """Its engine leaves by itself: the fixture looks for it."""
    fault.strike(signal.SIGKILL, fault.server.process.pid)
    for stream in fault.streams:
        with pytest.raises(httpx.HTTPError):
            stream.result(PATIENCE_S)


@at_every_moment("stopped")
def test_the_server_stands_still_for_a_while(fault):
    """An engine that is well is not taken for dead by a server that was away; nothing is lost."""
    fault.strike(signal.SIGSTOP, fault.server.process.pid)
    time.sleep(STOP_S)
    fault.strike(signal.SIGCONT, fault.server.process.pid)
    for stream in fault.streams:
        lines = stream.result(60)
        reasons = [choice["finish_reason"] for line in lines[:-1] for choice in json.loads(line)["choices"]]
        assert reasons.count("length") == NUM_CHOICES and lines[-1] == "[DONE]"
    fault.server.wait_until_ready()
    assert fault.server.client.post("/v1/completions", json=SHORT).status_code == 200
    assert fault.server.engine_process_ids() == [fault.engine_id]
