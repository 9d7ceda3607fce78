"""How models write tool calls and reasoning into their text: data, from which parser, grammar and prompt are made."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"  # instead of a format's name: the one that the chat template shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way to write calls: opening, call, between, call, ..., closing.

    A call is `before_name` NAME `before_arguments` ARGUMENTS `after_arguments`, where ARGUMENTS is a JSON object.
    """

    opening: str
    before_name: str = '{"name": "'
    before_arguments: str = '", "arguments": '
    after_arguments: str = "}"
    between: str
    closing: str
    markers: tuple[str, ...]  # the parts of these that are tokens of their own, in models trained for the format
    begin: tuple[str, ...]  # what tells calls from text
    end: str = ""  # and text from calls again; "": nothing does
    is_bare: bool = False  # a text that begins with a brace may be calls, too
    has_plain_names: bool = False  # a call may be NAME[ARGS]ARGUMENTS
    call_id_prefix: str = "call_"
    call_id_chars: int = 24  # behind the prefix


HERMES = ToolFormat(
    opening="<tool_call>\n",
    between="\n</tool_call>\n<tool_call>\n",
    closing="\n</tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    begin=("<tool_call>",),
    end="</tool_call>",
    is_bare=True,  # Qwen2.5-Coder leaves the markers out
)
LLAMA = ToolFormat(
    opening="",
    before_arguments='", "parameters": ',
    between="; ",
    closing="",
    markers=("<|python_tag|>",),
    begin=("<|python_tag|>",),
    is_bare=True,
)
MISTRAL = ToolFormat(
    opening="[TOOL_CALLS][",
    between=", ",
    closing="]",
    markers=("[TOOL_CALLS]",),
    begin=("[TOOL_CALLS]",),
    has_plain_names=True,
    call_id_prefix="",
    call_id_chars=9,  # its templates refuse any other
)
MISTRAL_PLAIN = ToolFormat(
    opening="[TOOL_CALLS]",
    before_name="",
    before_arguments="[ARGS]",
    after_arguments="",
    between="[TOOL_CALLS]",
    closing="",
    markers=("[TOOL_CALLS]", "[ARGS]"),
    begin=("[TOOL_CALLS]",),
    has_plain_names=True,
    call_id_prefix="",
    call_id_chars=9,
)
TOOL_FORMATS = {"hermes": HERMES, "llama3_json": LLAMA, "mistral": MISTRAL, "mistral_plain": MISTRAL_PLAIN}

# What a chat template says only if it writes calls in that format; the first that is found counts.
_TOOL_SIGNS = (
    ("[ARGS]", MISTRAL_PLAIN),
    ("[TOOL_CALLS]", MISTRAL),
    ("<tool_call>", HERMES),
    ('"parameters": ', LLAMA),
)


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How thoughts are set off from the answer."""

    begin: str
    end: str


THINK = ReasoningFormat("<think>", "</think>")
MISTRAL_THINK = ReasoningFormat("[THINK]", "[/THINK]")
REASONING_FORMATS = {"qwen3": THINK, "deepseek_r1": THINK, "mistral": MISTRAL_THINK}


def find_tool_format(template: str) -> ToolFormat | None:
    """The format in which this chat template writes calls; None if it is not one of ours."""
    return next((tool_format for sign, tool_format in _TOOL_SIGNS if sign in template), None)


def find_reasoning_format(template: str) -> ReasoningFormat | None:
    """The format in which this chat template tells reasoning from answers; None if it does not."""
    return next((known for known in (THINK, MISTRAL_THINK) if known.end in template), None)
