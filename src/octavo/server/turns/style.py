"""TurnStyle: how one model writes its turns, and what follows from that for a request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.core.sampling_params import ParameterError, SamplingParams, StructuredOutputsParams
from octavo.server.errors import invalid
from octavo.server.turns.formats import (
    AUTO,
    HERMES,
    REASONING_FORMATS,
    TOOL_FORMATS,
    ToolFormat,
    find_reasoning_format,
    find_tool_format,
)
from octavo.server.turns.grammar import (
    CALLS,
    CALLS_OR_PRESCRIBED,
    PRESCRIBED,
    TEXT_WITH_CALLS,
    calls_rules,
    prescribed_rules,
    turn_grammar,
)
from octavo.server.turns.parser import TurnParser
from octavo.server.turns.reasoning_tokens import ReasoningCounter
from octavo.server.turns.tool_prompt import reads_tools, write_tools
from octavo.server.turns.tools import Tool, ToolChoice

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

MAX_TOOLS_BYTES = 1 << 20  # writing them out takes 10 ms


class TurnStyle:
    """The formats of a model's tool calls and reasoning: those that are named, or what its chat template shows."""

    def __init__(self, tokenizer: Tokenizer, tool_call_parser: str = AUTO, reasoning_parser: str = AUTO) -> None:
        template = tokenizer.chat_template.source or ""
        self._tokenizer = tokenizer
        self._reads_tools = reads_tools(template)
        self._tool_format: ToolFormat | None
        if tool_call_parser != AUTO:
            self._tool_format = TOOL_FORMATS[tool_call_parser]
        else:
            self._tool_format = find_tool_format(template) if self._reads_tools else HERMES
        self.reasoning_format = (
            find_reasoning_format(template) if reasoning_parser == AUTO else REASONING_FORMATS[reasoning_parser]
        )

    @property
    def tool_format(self) -> ToolFormat:
        """The format of calls. Raises the error for a model that has none we know."""
        if self._tool_format is None:
            known = ", ".join(TOOL_FORMATS)
            message = f"the chat template writes tool calls in an unknown way; --tool-call-parser knows {known}"
            raise invalid("tools", message, "unsupported_parameter")
        return self._tool_format

    def messages(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
    ) -> tuple[Sequence[Mapping[str, Any]], list[dict[str, Any]] | None]:
        """The messages and the tools as this model's template takes them."""
        described = [tool.for_template() for tool in tools]
        num_bytes = len(msgspec.json.encode(described))
        if num_bytes > MAX_TOOLS_BYTES:
            raise invalid("tools", f"tools have {num_bytes} bytes; at most {MAX_TOOLS_BYTES} are allowed")
        if not self._reads_tools:
            return write_tools(messages, described), None
        if self._tool_format and not self._tool_format.call_id_prefix:
            messages = [_with_fitting_ids(message, self._tool_format.call_id_chars) for message in messages]
        return messages, described or None

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether the prompt ends within the reasoning."""
        return self.reasoning_format is not None and prompt.rstrip().endswith(self.reasoning_format.begin)

    def params(
        self, params: SamplingParams, tools: Sequence[Tool], choice: ToolChoice, *, is_reasoning: bool
    ) -> SamplingParams:
        """The parameters under which the model calls these tools as it was told to, and the parser sees its markers."""
        markers = self.tool_format.markers if tools else ()
        if self.reasoning_format:
            markers = (*markers, self.reasoning_format.begin, self.reasoning_format.end)
        shows_special_tokens = any(self._special_id(marker) is not None for marker in markers)
        return replace(
            params,
            structured_outputs=self._constraint(params, tools, choice, is_reasoning=is_reasoning),
            skip_special_tokens=params.skip_special_tokens and not shows_special_tokens,
        )

    def parser(self, index: int, tools: Sequence[Tool], choice: ToolChoice, *, is_reasoning: bool) -> TurnParser:
        """A parser of one choice."""
        return TurnParser(
            index,
            reasoning_format=self.reasoning_format,
            is_reasoning=is_reasoning,
            tool_format=self.tool_format if tools else None,
            tool_names=[tool.function.name for tool in tools],
            max_calls=None if choice.is_parallel else 1,
        )

    def reasoning_counter(self, *, is_reasoning: bool) -> ReasoningCounter | None:
        """A counter of one choice's reasoning; None for a model that does not reason."""
        if self.reasoning_format is None:
            return None
        return ReasoningCounter(self.reasoning_format, self._tokenizer, is_reasoning=is_reasoning)

    def _constraint(
        self, params: SamplingParams, tools: Sequence[Tool], choice: ToolChoice, *, is_reasoning: bool
    ) -> StructuredOutputsParams | None:
        structured = params.structured_outputs
        if choice.mode == "required":
            structured, answer = None, CALLS  # what it says is said of text, and there will be none
        elif structured is not None:
            if structured.grammar is not None or not (tools or self.reasoning_format):
                return structured
            answer = CALLS_OR_PRESCRIBED if tools else PRESCRIBED
        elif any(tool.function.strict for tool in tools):
            answer = TEXT_WITH_CALLS
        else:
            return None
        functions = [tool.function for tool in tools]
        try:
            rules = prescribed_rules(structured) if structured else []
            if tools:
                rules += calls_rules(functions, self.tool_format, self._special_id, is_parallel=choice.is_parallel)
        except (ParameterError, RecursionError):
            raise invalid("tools" if tools else "response_format", "a schema is nested too deeply") from None
        grammar = turn_grammar(answer, rules, self.reasoning_format, self._special_id, is_reasoning=is_reasoning)
        return StructuredOutputsParams(grammar=grammar)

    def _special_id(self, text: str) -> int | None:
        """The id of a special token; None for any other text."""
        token_ids = self._tokenizer.encode(text, add_special_tokens=False)
        return token_ids[0] if len(token_ids) == 1 and self._tokenizer.is_special(token_ids[0]) else None


def _with_fitting_ids(message: Mapping[str, Any], num_chars: int) -> dict[str, Any]:
    """The message, its call ids replaced where the template would refuse them: equal ones by equal ones."""
    fitting = dict(message)
    if "tool_call_id" in message:
        fitting["tool_call_id"] = _fitting_id(message["tool_call_id"], num_chars)
    if "tool_calls" in message:
        calls = message["tool_calls"]
        fitting["tool_calls"] = [call | {"id": _fitting_id(call.get("id", ""), num_chars)} for call in calls]
    return fitting


def _fitting_id(call_id: str, num_chars: int) -> str:
    if re.fullmatch(r"[A-Za-z0-9]+", call_id) and len(call_id) == num_chars:
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:num_chars]
