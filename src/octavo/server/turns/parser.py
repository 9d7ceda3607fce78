"""TurnParser: text as it is generated becomes reasoning, text and tool calls, and shows none of their markers.

Nothing is decided before the text decides it: however the text is cut into pieces, the events come to the same.
What begins like a call and is none is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from uuid import uuid4

import msgspec

from octavo.server.turns.events import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStart, TurnEvent
from octavo.server.turns.formats import ReasoningFormat, ToolFormat
from octavo.server.turns.json_scanner import JsonScanner

_SEPARATORS = " \t\r\n[],;}"  # between calls and around a list of them; a brace too many is forgiven
_NAME = r'[^"\\\x00-\x1f]{1,256}'
_JSON_HEAD = re.compile(
    rf'\{{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"({_NAME})"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)'
)
_PLAIN_HEAD = re.compile(r"([\w.-]{1,256})(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)")
_PLAIN_HEAD_SO_FAR = re.compile(r"[\w.-]{1,256}(?:\[[A-Z_]*\]?\w*){0,2}\s*")  # and more, which does no harm

_FIRST_NAME = re.compile(rf'\{{\s*"name"\s*:\s*"({_NAME})"')
_FIRST_KEY = re.compile(r'\{\s*(?:"([^"]*"?)?)?')
_CALL_KEYS = ('name"', 'type"', 'arguments"', 'parameters"')


class TurnParser:
    """The parser of one choice. Without formats all is text, as it comes.

    `is_reasoning`: the prompt has opened the reasoning. Calls beyond `max_calls`, and all behind, are left out.
    """

    def __init__(
        self,
        index: int,
        *,
        reasoning_format: ReasoningFormat | None = None,
        is_reasoning: bool = False,
        tool_format: ToolFormat | None = None,
        tool_names: Collection[str] = (),
        max_calls: int | None = None,
    ) -> None:
        self.num_calls = 0
        self._index = index
        self._reasoning = reasoning_format
        self._tools = tool_format
        self._tool_names = tool_names
        self._max_calls = max_calls
        self._begins = tool_format.begin if tool_format else ()
        self._ends = (tool_format.end,) if tool_format and tool_format.end else ()
        self._buffer = ""  # what has come and is not decided
        self._undone = ""  # taken for the beginning of calls: text, if none comes
        self._drops_blanks = is_reasoning  # before the next text
        self._scanner = JsonScanner()
        self._num_scanned = 0  # characters of the buffer that it has seen
        self._arguments_depth = 0  # brackets that are open around the arguments
        self._events: list[TurnEvent] = []
        self._read: Callable[[bool], bool] = self._read_reasoning if is_reasoning else self._read_opening

    def add(self, text: str, *, is_last: bool = False) -> list[TurnEvent]:
        """The events that this piece of the text brings; the last piece brings everything that was held back."""
        self._buffer += text
        self._events = []
        while self._read(is_last):  # each takes something off the buffer and sets who goes on, or has to wait
            pass
        return self._events

    def _read_opening(self, is_last: bool) -> bool:
        begin = self._reasoning.begin if self._reasoning else ""
        text = self._buffer.lstrip()
        if begin and text.startswith(begin):
            self._take(self._buffer.index(begin) + len(begin))
            self._drops_blanks = True
            self._read = self._read_reasoning
        elif begin.startswith(text) and begin and not is_last:
            return False
        else:
            self._read = self._read_answer_opening
        return True

    def _read_reasoning(self, is_last: bool) -> bool:
        assert self._reasoning is not None
        end = self._reasoning.end
        place = self._buffer.find(end)
        if place < 0:
            self._emit_text(ReasoningDelta, self._take_undoubted((end,), is_last))
            return False
        self._emit_text(ReasoningDelta, self._take(place).rstrip())
        self._take(len(end))
        self._drops_blanks = True
        self._read = self._read_answer_opening
        return True

    def _read_answer_opening(self, is_last: bool) -> bool:
        self._read = self._read_text
        if self._tools and self._tools.is_bare:
            text = self._buffer.lstrip()
            if not text and not is_last:
                self._read = self._read_answer_opening
                return False
            if text.startswith("{"):
                self._undone = self._take(len(self._buffer) - len(text))
                self._begin_head()
        return True

    def _read_text(self, is_last: bool) -> bool:
        places = [(place, begin) for begin in self._begins if (place := self._buffer.find(begin)) >= 0]
        if not places:
            self._emit_text(TextDelta, self._take_undoubted(self._begins, is_last))
            return False
        place, begin = min(places)
        before = self._take(place)
        self._emit_text(TextDelta, before.rstrip())
        self._undone = before[len(before.rstrip()) :] + self._take(len(begin))
        self._read = self._read_between
        return True

    def _read_between(self, is_last: bool) -> bool:
        """Before, between and behind calls."""
        for begin in self._begins:
            if self._buffer.startswith(begin):
                self._undone += self._take(len(begin))
                return True
        for end in self._ends:
            if self._buffer.startswith(end):
                self._skip(len(end))
                return self._leave_calls()
        if not is_last and any(marker.startswith(self._buffer) for marker in (*self._begins, *self._ends)):
            return False
        if self._buffer and self._buffer[0] in _SEPARATORS:
            self._skip(1)
        else:
            self._begin_head()
        return True

    def _skip(self, num_chars: int) -> None:
        """Leave out what stands around calls, if there is one."""
        taken = self._take(num_chars)
        if self._undone:
            self._undone += taken

    def _begin_head(self) -> None:
        self._scanner = JsonScanner()
        self._num_scanned = 0
        self._read = self._read_head

    def _read_head(self, is_last: bool) -> bool:
        """From a call's first letter to its arguments."""
        assert self._tools is not None
        is_json = self._buffer.startswith("{")
        match = _JSON_HEAD.match(self._buffer)
        if not match and self._tools.has_plain_names:
            match = _PLAIN_HEAD.match(self._buffer)
        if match:
            if not self._is_call(match[1]):
                return self._leave_calls()
            self._start_call(match[1], match.end(), depth=int(is_json))
            self._read = self._read_arguments
            return True
        if is_json and (self._is_marked or _may_be_call(self._buffer, self._tool_names)):
            return self._read_object(is_last)
        if self._tools.has_plain_names and _PLAIN_HEAD_SO_FAR.fullmatch(self._buffer) and not is_last:
            return False
        return self._leave_calls()

    def _read_object(self, is_last: bool) -> bool:
        """A call whose parts come in another order is understood once it is there as a whole."""
        num_chars, has_ended = self._scanner.scan(self._buffer[self._num_scanned :], 0)
        self._num_scanned += num_chars
        if not has_ended and not is_last:
            return False
        call = _parse_call(self._buffer[: self._num_scanned])
        if call is None or not self._is_call(call[0]):
            return self._leave_calls()
        self._start_call(call[0], self._num_scanned, depth=0)
        self._emit_arguments(call[1])
        return self._end_call()

    @property
    def _is_marked(self) -> bool:
        """Whether the model has said that what comes is a call."""
        return self._undone.strip() != "" or self.num_calls > 0

    def _is_call(self, name: str) -> bool:
        """Whether it calls a tool: behind a marker it does, if only one that does not exist."""
        return name in self._tool_names or self._is_marked

    def _start_call(self, name: str, num_chars: int, *, depth: int) -> None:
        assert self._tools is not None
        self._take(num_chars)
        self._undone = ""
        self._scanner = JsonScanner(depth)
        self._arguments_depth = depth
        call_id = self._tools.call_id_prefix + uuid4().hex[: self._tools.call_id_chars]
        self._events.append(ToolCallStart(self._index, self.num_calls, call_id, name))
        self.num_calls += 1

    def _read_arguments(self, _: bool) -> bool:
        num_chars, has_ended = self._scanner.scan(self._buffer, self._arguments_depth)
        self._emit_arguments(self._take(num_chars))
        if has_ended:
            self._read = self._read_tail
        return has_ended

    def _read_tail(self, _: bool) -> bool:
        """What is left of a call behind its arguments; a brace too few is forgiven."""
        if self._scanner.depth == 0 or self._scanner.is_broken:
            return self._end_call()
        num_chars, has_ended = self._scanner.scan(self._buffer, 0)
        self._take(num_chars)
        return has_ended

    def _end_call(self) -> bool:
        self._read = self._ignore_rest if self.num_calls == self._max_calls else self._read_between
        return True

    def _leave_calls(self) -> bool:
        """Go on with text, of which what led here is part unless it was a call."""
        self._drops_blanks = self._drops_blanks or not self._undone
        self._emit_text(TextDelta, self._undone)
        self._undone = ""
        self._read = self._read_text
        return True

    def _ignore_rest(self, _: bool) -> bool:
        self._buffer = ""
        return False

    def _take(self, num_chars: int) -> str:
        taken, self._buffer = self._buffer[:num_chars], self._buffer[num_chars:]
        return taken

    def _take_undoubted(self, markers: tuple[str, ...], is_last: bool) -> str:
        """All but what may be the beginning of a marker, and the blanks before it, which belong to the marker."""
        text = self._buffer
        if is_last or not markers:
            return self._take(len(text))
        longest = max(map(len, markers)) - 1
        starts = range(max(0, len(text) - longest), len(text))
        doubted = next((start for start in starts if any(m.startswith(text[start:]) for m in markers)), len(text))
        return self._take(len(text[:doubted].rstrip()))

    def _emit_text(self, kind: type[ReasoningDelta] | type[TextDelta], text: str) -> None:
        if self._drops_blanks:
            text = text.lstrip()
        if text:
            self._drops_blanks = False
            self._events.append(kind(self._index, text))

    def _emit_arguments(self, text: str) -> None:
        if text:
            self._events.append(ToolArgumentsDelta(self._index, self.num_calls - 1, text))


def _may_be_call(text: str, tool_names: Collection[str]) -> bool:
    """Whether an object may yet be a call: its first key is one that calls have, and a name there a tool's."""
    if name := _FIRST_NAME.match(text):
        return name[1] in tool_names
    key = _FIRST_KEY.match(text)
    return key is not None and any(known.startswith(key[1] or "") for known in _CALL_KEYS)


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


def _parse_call(text: str) -> tuple[str, str] | None:
    """Name and arguments of the call; None if it is not one. Arguments may come as a string that holds them."""
    try:
        call = msgspec.json.decode(text, type=_Call)
        arguments = bytes(call.arguments or call.parameters).decode().strip()
        if arguments.startswith('"'):
            arguments = msgspec.json.decode(arguments, type=str)
        msgspec.json.decode(arguments, type=dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return call.name, arguments
