"""Five hundred clients leave, whatever is being done for them: nothing is left of any."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.server_process import ServerProcess, until

NUM_CLIENTS = 500
NUM_AT_ONCE = 24
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True}
BYSTANDER = {"prompt": "A bystander", "max_tokens": 30, "ignore_eos": True, "seed": 7, "logprobs": 2}


@pytest.fixture
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    """Most requests wait, prompts take many steps, and those that run take each other's blocks."""
    options = ["--max-model-len", "512", "--max-num-seqs", "6", "--max-num-batched-tokens", "16"]
    options += ["--kv-cache-memory-bytes", "400000", "--max-queued-requests", "1000"]
    with ServerProcess(tiny_model, *options) as server:
        yield server.wait_until_ready()


def test_nothing_is_left_of_clients_that_leave(server):
    expected = server.client.post("/v1/completions", json=BYSTANDER).json()["choices"]
    parts = urlsplit(server.url)
    address = (str(parts.hostname), int(parts.port or 0))
    largest: dict[str, int] = {}

    def is_idle() -> bool:
        for table, size in tables(server).items():
            largest[table] = max(size, largest.get(table, 0))
        return server.is_idle()

    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        visits = [pool.submit(come_and_leave, address, number) for number in range(NUM_CLIENTS)]
        while not all(visit.done() for visit in visits):
            is_idle()
            time.sleep(0.02)
    left_s = time.monotonic()
    for visit in visits:
        visit.result()
    until(is_idle)
    idle_s = time.monotonic()
    until(lambda: not any(tables(server).values()))
    print(f"{NUM_CLIENTS} clients have left; {idle_s - left_s:.2f} s later all blocks are free, ", end="")
    print(f"{time.monotonic() - idle_s:.2f} s after that all tables empty; there were {largest}")
    assert all(largest.values()), largest  # else some were not in the state that they should have left in
    assert server.load()["num_preemptions_total"] > 0
    assert server.client.post("/v1/completions", json=BYSTANDER).json()["choices"] == expected
    assert not [line for line in server.log if "Traceback" in line]


def tables(server: ServerProcess) -> dict[str, int]:
    sizes: dict[str, int] = server.client.get("/debug/tables").json()
    return sizes


def come_and_leave(address: tuple[str, int], number: int) -> None:
    """Ask for something, and leave before it is there: politely or not, at once or after a while."""
    rng = random.Random(number)
    body = request(number, rng) | {"n": rng.randint(1, 3), "stream": rng.random() < 0.6}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: octavo\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    with socket.create_connection(address) as connection:
        connection.sendall(head + data)
        time.sleep(rng.choice((0.0, 0.01, 0.1, 0.8)) * rng.random())
        if rng.random() < 0.5:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # nothing may have come yet
                connection.recv(1 << rng.randrange(14))
        if rng.random() < 0.5:  # a reset in place of an end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def request(number: int, rng: random.Random) -> dict[str, Any]:
    """One that spends its time in one state: its text is long, or its grammar, its prompt, its answer, its wait."""
    match number % 5:
        case 0:
            return LONG | {"prompt": "tokens " * 10_000, "truncate_prompt_tokens": 50}
        case 1:
            num_words = rng.choice((2, 2, 2, 300))
            words = "|".join(f"w{number}x{index}" for index in range(num_words))
            return LONG | {"structured_outputs": {"regex": f"({words})+"}}
        case 2:
            return LONG | {"prompt": "chunk " * 60, "max_tokens": 50, "logprobs": 5}
        case 3:
            return LONG | {"timeout": rng.choice((0.1, 1000.0)), "user": "u"}
        case _:
            return LONG
