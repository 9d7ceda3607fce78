"""Thousands of broken requests: no fault of the server's, no hang, and a bystander who notices nothing.

FUZZ_TRIES and FUZZ_SEED say how many and which; a failure names the try, which the same seed makes again.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.e2e.server_process import ServerProcess, until
from tests.fuzz.exchange import check, send
from tests.fuzz.requests import RequestMaker

NUM_TRIES = int(os.environ.get("FUZZ_TRIES", "2000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
NUM_CLIENTS = 4
BYSTANDER = {"prompt": "A bystander", "max_tokens": 40, "seed": 7, "logprobs": 2, "stream": True, "ignore_eos": True}


def test_nothing_breaks_the_server_or_reaches_the_bystander(tiny_model: Path) -> None:
    options = ["--max-model-len", "64", "--max-num-seqs", "64", "--max-body-bytes", "100000"]
    with ServerProcess(tiny_model, *options) as server:
        server.wait_until_ready()
        maker = RequestMaker(server.client.get("/openapi.json").json(), SEED)
        address = (str(urlsplit(server.url).hostname), int(urlsplit(server.url).port or 0))
        expected = ask_bystander(server.url)
        answers: list[Any] = []
        is_over = threading.Event()
        bystander = threading.Thread(target=keep_asking, args=(server.url, answers, is_over))
        bystander.start()

        statuses: Counter[int | None] = Counter()

        def attempt(number: int) -> str | None:
            """What was wrong with the answer; None: nothing."""
            exchange = maker.make(number)
            try:
                reply = send(address, exchange)
                statuses[reply.status if reply else None] += 1
                if reply is not None:
                    check(reply)
            except Exception as error:
                return f"try {number} of seed {SEED}: {exchange}: {type(error).__name__}: {error}"
            return None

        try:
            with ThreadPoolExecutor(NUM_CLIENTS) as pool:
                faults = [fault for fault in pool.map(attempt, range(NUM_TRIES)) if fault]
        finally:
            is_over.set()
            bystander.join()
        log = [line for line in server.log if not re.search(r" \d+ ms ", line)]  # what the server says unasked
        assert not faults, "\n".join([f"{len(faults)} faults", *faults[:5], *log[-40:]])
        print(dict(statuses))
        assert min(statuses[200], statuses[400]) > 0.15 * NUM_TRIES  # else little was tried
        assert len(answers) > 1
        for answer in answers:
            assert answer == expected, [answer, *log[-40:]]
        until(server.is_idle)  # every block is free, no request is left
        assert ask_bystander(server.url) == expected
        assert not [line for line in server.log if "Traceback" in line]


def ask_bystander(url: str) -> dict[str, Any]:
    """The bystander's answer, put together: into how many events it is cut, its own haste decides."""
    answer: dict[str, Any] = {"text": "", "finish_reason": None}
    with httpx.stream("POST", f"{url}/v1/completions", json=BYSTANDER, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                [choice] = json.loads(line.removeprefix("data: "))["choices"]
                answer["text"] += choice["text"]
                answer["finish_reason"] = choice["finish_reason"]
                for name, values in (choice["logprobs"] or {}).items():
                    answer[name] = answer.get(name, []) + values
    assert answer["finish_reason"] == "length" and len(answer["tokens"]) == 40, answer
    return answer


def keep_asking(url: str, answers: list[Any], is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            answers.append(ask_bystander(url))
        except Exception as error:  # to be seen by the comparison
            answers.append(error)
