"""Reading a stream of events as a client does."""

from __future__ import annotations

import json
from typing import Any

import httpx


def read_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of each event before [DONE], which must be the last."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, end = response.content.split(b"\n\n")
    assert end == b""
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    *datas, last = [event.removeprefix(b"data: ").decode() for event in events]  # each is valid UTF-8 by itself
    assert last == "[DONE]"
    return [json.loads(data) for data in datas]
