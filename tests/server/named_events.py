"""Reading a stream of named events as a client does."""

from __future__ import annotations

import json
from typing import Any

import httpx


def read_named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of each event, whose type must be its name. There is no [DONE]."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, end = response.content.decode().split("\n\n")
    assert end == ""
    datas = []
    for event in events:
        name, data = event.split("\n")
        datas.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {datas[-1]['type']}"
    return datas
