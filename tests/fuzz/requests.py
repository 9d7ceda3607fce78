"""Requests to fuzz with: whole ones from the server's own OpenAPI document, broken in every way."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.exchange import Exchange
from tests.fuzz.mutations import METHODS, PATHS, mutate, mutate_headers
from tests.fuzz.values import ValueMaker

MESSAGES = [{"role": "user", "content": "Hi"}]
BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 3, "seed": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 3, "seed": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 3},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 3},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [5]},
}


class RequestMaker:
    """Makes try number i: the same one for the same document and seed."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._document = document
        self._seed = seed
        self._paths = sorted(document["paths"])
        self._bodies = {
            path: operations["post"]["requestBody"]["content"]["application/json"]["schema"]
            for path, operations in document["paths"].items()
            if "requestBody" in operations.get("post", {})
        }

    def make(self, number: int) -> Exchange:
        """The request of this number."""
        rng = random.Random(f"{self._seed}/{number}")
        path = rng.choice(sorted(self._bodies))
        body = self._body(rng, path)
        headers = [(b"host", b"octavo"), (b"content-type", b"application/json")]
        method, raw_path = b"POST", path.replace("{", "").replace("}", "").encode()
        kind = rng.random()
        if kind < 0.3:
            body = mutate(rng, body)
        if 0.25 < kind < 0.4:
            headers = mutate_headers(rng, headers)
        if 0.45 < kind < 0.52:
            raw_path = rng.choice([*PATHS, *(path.encode() for path in self._paths), mutate(rng, raw_path).strip()])
            method = rng.choice([method, *METHODS])
        leaves_after = rng.randrange(1, len(body) + 300) if kind > 0.93 else None
        return Exchange(method, raw_path, headers, body, rng.random() < 0.8, leaves_after)

    def _body(self, rng: random.Random, path: str) -> bytes:
        """A body by the schema, or a plain one with a few fields by the schema; short to answer, as a rule."""
        maker = ValueMaker(rng, self._document["components"]["schemas"])
        value = maker.make(self._bodies[path])
        if path in BASES and isinstance(value, dict) and rng.random() < 0.7:
            value = BASES[path] | {name: value[name] for name in rng.sample(sorted(value), min(len(value), 4))}
        if isinstance(value, dict) and rng.random() < 0.9:
            value.pop("model", None)
            limit = "max_output_tokens" if path.endswith("/responses") else "max_tokens"
            value[limit] = rng.choice((1, 2, 4))
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
