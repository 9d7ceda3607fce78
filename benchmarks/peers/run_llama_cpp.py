"""Measures llama.cpp, built for this machine, through its own server: see benchmarks.measurement for the command line.

    python -m benchmarks.peers.run_llama_cpp --model MODEL.gguf --case mixed

The server batches continuously. Up to MAX_SLOTS requests run at once, each in a KV cache of its own, and the others
wait: more slots, or one cache for all, made the mixed case slower. Requests bypass the prompt cache. Ready time and
memory are the server's alone; its times include HTTP on the loopback interface.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.record import ROOT
from benchmarks.workload import BenchmarkRequest

SERVER = ROOT / ".peers" / "llama_cpp" / "bin" / "llama-server"
MAX_SLOTS = 16
MAX_BATCH_TOKENS = 512
POLL_S = 0.01
START_TIMEOUT_S = 60


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """A llama-server with slots for the requests of the case."""
    port = free_port()
    server = subprocess.Popen([str(SERVER), *server_options(settings, port)], stderr=subprocess.DEVNULL)
    try:
        wait_until_up(server, port)
        with ThreadPoolExecutor(settings.case.num_requests) as pool:

            def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
                return list(pool.map(lambda request: complete(port, request), requests))

            yield MeasuredEngine("llama.cpp", server_version(), generate, server.pid)
    finally:
        server.terminate()
        server.wait()


def server_options(settings: Settings, port: int) -> list[str]:
    """The command line of a server for this case."""
    value_by_flag = {
        "--model": settings.model,
        "--host": "127.0.0.1",
        "--port": port,
        "--threads": settings.num_threads,
        "--threads-batch": settings.num_threads,
        "--parallel": num_slots(settings),
        "--ctx-size": num_kv_tokens(settings),
        "--ubatch-size": MAX_BATCH_TOKENS,
        "--cache-ram": 0,
        "--log-verbosity": 0,
    }
    options = [str(part) for pair in value_by_flag.items() for part in pair]
    return [*options, "--no-kv-unified", "--no-ui"]


def num_slots(settings: Settings) -> int:
    """How many requests run at once."""
    return min(MAX_SLOTS, settings.case.num_requests)


def num_kv_tokens(settings: Settings) -> int:
    """Room for the longest request of the case in each slot."""
    return num_slots(settings) * settings.case.max_request_len


def complete(port: int, request: BenchmarkRequest) -> int:
    """Run one request to its end; the number of tokens that it got."""
    connection = HTTPConnection("127.0.0.1", port)
    body = {
        "prompt": request.prompt_token_ids,
        "n_predict": request.num_output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "response_fields": ["tokens_predicted"],
    }
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"llama-server answered {response.status}: {answer}")
    return int(answer["tokens_predicted"])


def wait_until_up(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the model is loaded. Raises RuntimeError if the server ends or takes longer than START_TIMEOUT_S."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline_s:
        connection = HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except ConnectionError:
            pass
        finally:
            connection.close()
        time.sleep(POLL_S)
    raise RuntimeError(f"{SERVER} did not start within {START_TIMEOUT_S} s; run it by hand to see why")


def server_version() -> str:
    """What the server says that it is."""
    result = subprocess.run([str(SERVER), "--version"], check=True, capture_output=True, text=True)
    return (result.stdout + result.stderr).strip().splitlines()[0].removeprefix("version: ")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    measurement.run(open_engine)
