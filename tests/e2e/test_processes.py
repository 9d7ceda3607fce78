"""Two processes that live and die together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import TIMEOUT_S, ServerProcess, is_running, until

GRACE_S = 5.0  # within which no process of ours may be left
NUM_CHOICES = 16
SHORT = {"prompt": "Once", "max_tokens": 8, "temperature": 0}
LONG = {"prompt": "Once", "max_tokens": 480, "ignore_eos": True, "n": NUM_CHOICES}


@pytest.fixture
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tiny_model) as server:
        yield server


def ask_all(server: ServerProcess, num_clients: int = 4):
    """Long requests under way, streaming; the futures of what each of them gets."""
    pool = ThreadPoolExecutor(num_clients)
    futures = [pool.submit(read_stream, server, i) for i in range(num_clients)]
    pool.shutdown(wait=False)
    until(lambda: server.load()["num_running"] == num_clients * NUM_CHOICES)
    return futures


def read_stream(server: ServerProcess, i: int) -> list[dict | str]:
    with server.client.stream("POST", "/v1/completions", json=LONG | {"stream": True, "seed": i}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def status_of(server: ServerProcess) -> str:
    """What /health says once it no longer says that all is well."""
    until(lambda: server.client.get("/health").status_code == 503)
    return server.client.get("/health").json()["status"]


def test_engine_killed(server):
    [engine_id] = server.wait_until_ready().engine_process_ids()
    futures = ask_all(server)
    os.kill(engine_id, signal.SIGKILL)
    for future in futures:
        *_, error, done = future.result(timeout=GRACE_S)
        assert (error["error"]["code"], done) == ("engine_dead", "[DONE]")
    assert server.wait() == 1
    assert "SIGKILL" in server.log[-1] and "--gpu-memory-utilization" in server.log[-1]


def test_an_engine_is_started_again_once(tiny_model):
    with ServerProcess(tiny_model, "--restart") as server:
        [first_id] = server.wait_until_ready().engine_process_ids()
        expected = server.client.post("/v1/completions", json=SHORT).json()["choices"]
        futures = ask_all(server)
        os.kill(first_id, signal.SIGKILL)
        for future in futures:
            *_, error, _ = future.result(timeout=GRACE_S)
            assert error["error"]["code"] == "engine_dead"
        until(lambda: server.client.post("/v1/completions", json=SHORT).status_code == 200)
        assert server.client.post("/v1/completions", json=SHORT).json()["choices"] == expected
        [second_id] = server.engine_process_ids()
        assert second_id != first_id
        os.kill(second_id, signal.SIGKILL)
        assert server.wait() == 1


def test_engine_stopped(server):
    """A process that stands still is as good as dead."""
    [engine_id] = server.wait_until_ready().engine_process_ids()
    futures = ask_all(server)
    os.kill(engine_id, signal.SIGSTOP)
    for future in futures:
        *_, error, _ = future.result(timeout=2 * GRACE_S)
        assert "no sign of life" in error["error"]["message"]
    assert server.wait() == 1
    assert "no sign of life" in server.log[-1]
    assert not is_running(engine_id)


@pytest.mark.parametrize("moment", ["loading", "idle", "busy"])
def test_front_killed(server, moment):
    until(lambda: len(server.engine_process_ids()) == 1)
    if moment != "loading":
        server.wait_until_ready()
    [engine_id] = server.engine_process_ids()
    futures = ask_all(server) if moment == "busy" else []
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(GRACE_S)  # a dying process lets go of one file after the other
    grace_s = TIMEOUT_S if moment == "loading" else GRACE_S  # it watches once its imports are done
    until(lambda: not is_running(engine_id), grace_s)
    for future in futures:
        assert isinstance(future.exception(), httpx.RemoteProtocolError)  # cut off: no end of the stream
    address = server.url.removeprefix("http://").split(":")
    with socket.create_server((address[0], int(address[1]))):  # the port is free again
        pass


def test_the_first_signal_drains(server):
    server.wait_until_ready()
    [engine_id] = server.engine_process_ids()
    futures = ask_all(server)
    server.process.send_signal(signal.SIGINT)
    assert status_of(server) == "draining"
    assert server.client.post("/v1/completions", json=LONG).status_code == 503
    for future in futures:
        events = future.result()
        assert [event["choices"][0]["finish_reason"] for event in events[:-1]].count("length") == NUM_CHOICES
    assert server.wait() == 0
    assert not is_running(engine_id)


def test_the_second_signal_ends_all(server):
    server.wait_until_ready()
    [engine_id] = server.engine_process_ids()
    futures = ask_all(server)
    server.process.send_signal(signal.SIGTERM)
    assert status_of(server) == "draining"
    server.process.send_signal(signal.SIGTERM)
    for future in futures:
        *_, error, done = future.result(timeout=GRACE_S)
        assert (error["error"]["code"], done) == ("engine_dead", "[DONE]")
    assert server.wait() == 0
    assert not is_running(engine_id)


def test_a_signal_while_loading(tiny_model):
    with ServerProcess(tiny_model) as server:
        until(lambda: len(server.engine_process_ids()) == 1)
        [engine_id] = server.engine_process_ids()
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert not is_running(engine_id)


def test_the_port_answers_before_the_engine_is_ready(server):
    statuses = set()
    while (response := server.client.get("/health")).status_code != 200:
        statuses.add(response.json()["status"])
    assert statuses == {"loading"}
    until(lambda: any("ready after" in line for line in server.log))
    assert any("KV cache" in line for line in server.log)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from octavo.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_port_that_is_taken(tiny_model):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        finished = run("serve", str(tiny_model), "--port", port)
    assert finished.returncode == 1
    [line] = finished.stderr.splitlines()
    assert f"127.0.0.1:{port}" in line and "in use" in line and "--port" in line


def test_a_model_that_is_not_there(tmp_path):
    finished = run("serve", str(tmp_path / "none.gguf"), "--port", "0")
    assert finished.returncode == 1
    [line] = finished.stderr.splitlines()
    assert "none.gguf" in line


def test_a_start_that_the_memory_forbids(tiny_model):
    finished = run("serve", str(tiny_model), "--port", "0", "--kv-cache-memory-bytes", "100")
    assert finished.returncode == 1
    [line] = finished.stderr.splitlines()
    assert "--kv-cache-memory-bytes" in line


def test_idle_costs_nothing(server):
    """Neither process polls: over three seconds the engine uses less than 2% of a CPU."""
    [engine_id] = server.wait_until_ready().engine_process_ids()
    time.sleep(0.5)
    before_s = cpu_seconds(engine_id)
    time.sleep(3.0)
    assert cpu_seconds(engine_id) - before_s < 0.06


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
