"""Clients of every kind, good and bad: each comes once, does what it does, and says what was wrong with the server."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.e2e.server_process import TIMEOUT_S, ServerProcess
from tests.fuzz.exchange import check, send
from tests.fuzz.requests import RequestMaker

PREFIX = "The garden lies behind the house, where the river turns to the north and the old mill stands. "
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
CANARY = {"prompt": PREFIX + "A canary sings", "max_tokens": 16, "seed": 7, "logprobs": 2, "ignore_eos": True}
BAD_GRAMMARS: tuple[dict[str, Any], ...] = (
    {"regex": "("},
    {"grammar": "start: nowhere"},
    {"json": {"type": "no type"}},
    {"choice": []},
)

Visit = Callable[[random.Random], None]


class Visitors:
    """Everybody who comes to a server; `visit` lets in the one that a number stands for."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = httpx.Client(base_url=server.url, timeout=TIMEOUT_S)
        parts = urlsplit(server.url)
        self._address = (str(parts.hostname), int(parts.port or 0))
        self._maker = RequestMaker(server.client.get("/openapi.json").json(), seed=1)
        self._canary = self._ask_canary()
        self._visits: list[Visit] = [
            self._ask_canary_again,
            self._read_to_the_end,
            self._read_several_answers,
            self._leave_a_stream,
            self._leave_at_once,
            self._read_slowly,
            self._ask_for_structure,
            self._ask_for_no_structure,
            self._send_nonsense,
            self._have_no_time,
            self._speak_another_dialect,
        ]

    def fill(self, num_rows: int, num_grammars: int) -> None:
        """Bring what grows with use to its full size: buffers for so many rows at once, and so many grammars."""
        wide = {"max_tokens": 40, "ignore_eos": True, "n": num_rows, "logprobs": 20, "prompt_logprobs": 20}
        self._post("/v1/completions", wide | {"prompt": PREFIX * 4})
        for number in range(num_grammars):
            self._ask_for_structure(random.Random(-1 - number))

    def visit(self, number: int) -> str | None:
        """What the visitor found wrong; None: nothing."""
        visit = self._visits[number % len(self._visits)]
        try:
            visit(random.Random(number))
        except Exception as error:
            return f"visit {number}, {visit.__name__}: {type(error).__name__}: {error}"
        return None

    def close(self) -> None:
        self._client.close()

    def _post(self, path: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
        answer = self._client.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _ask_canary(self) -> Any:
        return self._post("/v1/completions", CANARY)["choices"]

    def _ask_canary_again(self, _: random.Random) -> None:
        assert self._ask_canary() == self._canary

    def _read_to_the_end(self, rng: random.Random) -> None:
        body = {"prompt": PREFIX + rng.choice(NAMES) + str(rng.random()), "max_tokens": rng.randint(1, 40)}
        with self._client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
            assert response.status_code == 200
            *_, done = [line for line in response.iter_lines() if line]
        assert done == "data: [DONE]"

    def _read_several_answers(self, rng: random.Random) -> None:
        messages = [{"role": "user", "content": f"Tell {rng.choice(NAMES)} of the river"}]
        body = {"messages": messages, "n": 3, "max_tokens": 10, "logprobs": True, "top_logprobs": 3}
        assert len(self._post("/v1/chat/completions", body)["choices"]) == 3

    def _leave_a_stream(self, rng: random.Random) -> None:
        body = {"prompt": PREFIX * rng.randint(1, 3), "max_tokens": 60, "ignore_eos": True, "stream": True, "n": 2}
        num_read = rng.randint(0, 12)
        with self._client.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            for place, _ in enumerate(response.iter_lines()):
                if place >= num_read:
                    break

    def _leave_at_once(self, rng: random.Random) -> None:
        exchange = self._maker.make(rng.randrange(1 << 20))
        send(self._address, type(exchange)(**vars(exchange) | {"leaves_after": len(exchange.encode())}))

    def _read_slowly(self, rng: random.Random) -> None:
        body = {"prompt": PREFIX, "max_tokens": 20, "ignore_eos": True, "stream": True, "logprobs": 5}
        with self._client.stream("POST", "/v1/completions", json=body) as response:
            for _ in response.iter_lines():
                time.sleep(0.02 * rng.random())

    def _ask_for_structure(self, rng: random.Random) -> None:
        name = f"{rng.choice(NAMES)}{rng.randrange(1000)}".lower()
        schema = {"type": "object", "properties": {name: {"enum": [1, 2]}}, "required": [name]}
        body = {
            "prompt": PREFIX,
            "max_tokens": 60,
            "structured_outputs": {"json": schema | {"additionalProperties": False}},
        }
        [choice] = self._post("/v1/completions", body)["choices"]
        assert choice["finish_reason"] == "length" or json.loads(choice["text"])[name] in (1, 2)

    def _ask_for_no_structure(self, rng: random.Random) -> None:
        self._post("/v1/completions", {"prompt": PREFIX, "structured_outputs": rng.choice(BAD_GRAMMARS)}, status=400)

    def _send_nonsense(self, rng: random.Random) -> None:
        reply = send(self._address, self._maker.make(rng.randrange(1 << 20)))
        if reply is not None:
            check(reply)

    def _have_no_time(self, rng: random.Random) -> None:
        body = {"prompt": PREFIX * 2, "max_tokens": 100, "ignore_eos": True, "timeout": 0.01 + rng.random() / 10}
        assert self._client.post("/v1/completions", json=body).status_code in (200, 503)

    def _speak_another_dialect(self, rng: random.Random) -> None:
        text = f"{rng.choice(NAMES)} asks for the mill"
        body = {"model": "", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
        body["model"] = self._client.get("/v1/models").json()["data"][0]["id"]
        self._post("/v1/messages", body)
        self._post("/v1/responses", {"input": text, "max_output_tokens": 8, "store": False})
