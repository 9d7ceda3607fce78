"""One event is one line, for whatever a client takes for a line."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.sse import encode_event


class Chunk(msgspec.Struct):
    text: str


@given(st.text(st.one_of(st.sampled_from("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), st.characters(codec="utf-8"))))
def test_no_line_end_of_any_kind_is_within_an_event(text):
    event = encode_event(Chunk(text)).decode()
    assert event.endswith("\n\n")
    [line, _] = event.splitlines()
    assert json.loads(line.removeprefix("data: ")) == {"text": text}
