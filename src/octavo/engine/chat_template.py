"""ChatTemplate: a conversation becomes a prompt, by the Jinja template that came with the model.

The environment is set up as transformers does it, so that templates written for it render the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from octavo.engine.bounded_environment import BoundedEnvironment, BoundExceededError, bounded_time

_CONTINUE_HERE = "\ue000continue here\ue000 "  # private characters, which no prompt holds
MAX_PROMPT_CHARACTERS = 16_000_000  # no context is that long; a template in a loop would fill the memory
MAX_INDENT = 16  # of JSON, at each level

Message = Mapping[str, Any]  # role, content, and whatever else the template reads


class ChatTemplateError(ValueError):
    """The conversation cannot be rendered: the message says why."""


class ChatTemplate:
    """A model's chat template.

    `variables` are what it may refer to besides the conversation: bos_token, eos_token.
    """

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        self.source = source  # Jinja; None: the model has none
        self._variables = dict(variables)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """The prompt. `add_generation_prompt` ends it where the answer is to begin, `continue_final_message` within
        the last message, which the answer then continues. `chat_template` is rendered instead of the model's.

        The role "developer" is taken for "system", and content given as a list of text parts for one string, its
        parts joined by newlines. Raises ChatTemplateError if the model has no template, if a part is not text, or
        if the template fails on these messages, refuses them or takes too long.
        """
        conversation = [_plain_message(message) for message in messages]
        if continue_final_message:
            _continue_final(conversation)
        try:
            prompt = _render(
                self._compiled(chat_template),
                self._variables | variables,
                messages=conversation,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt and not continue_final_message,
            )
        except ChatTemplateError:
            raise
        except (TemplateError, BoundExceededError) as error:
            raise ChatTemplateError(f"the chat template cannot render these messages: {error}") from error
        except Exception as error:  # the template's own expressions may fail in any way
            reason = f"{type(error).__name__}: {error}"
            raise ChatTemplateError(f"the chat template cannot render these messages: {reason}") from error
        return _cut_at_final(prompt) if continue_final_message else prompt

    def _compiled(self, chat_template: str | None) -> Template:
        """Compiled when first used: a broken template should not keep the model from completing plain prompts."""
        source = chat_template or self.source
        if source is None:
            raise ChatTemplateError(
                "this model has no chat template: use completions with a plain prompt, or a checkpoint that has one"
            )
        return _compile(source)


def _plain_message(message: Message) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "\n".join(_part_text(part) for part in content)
    return {**message, "role": "system" if role == "developer" else role, "content": "" if content is None else content}


def _part_text(part: Any) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": kind} if kind != "text":
            raise ChatTemplateError(f"a content part has type {kind!r}; this model reads text only")
        case _:
            raise ChatTemplateError(f"a content part is {part!r:.80}; it must be an object with type and text")


def _render(template: Template, variables: Mapping[str, Any], **more: Any) -> str:
    chunks: list[str] = []
    num_chars = 0
    with bounded_time():
        for chunk in template.generate(variables, **more):
            chunks.append(chunk)
            num_chars += len(chunk)
            if num_chars > MAX_PROMPT_CHARACTERS:
                raise ChatTemplateError(f"the chat template renders more than {MAX_PROMPT_CHARACTERS} characters")
    return "".join(chunks)


def _continue_final(conversation: list[dict[str, Any]]) -> None:
    if not conversation or not conversation[-1]["content"]:
        raise ChatTemplateError("continue_final_message needs a last message with content, which it is to continue")
    conversation[-1]["content"] += _CONTINUE_HERE


def _cut_at_final(prompt: str) -> str:
    """The prompt up to the end of the last message. A template that strips messages has stripped the mark's blank."""
    before, mark, after = prompt.rpartition(_CONTINUE_HERE.strip())
    if not mark:
        raise ChatTemplateError("continue_final_message: this chat template does not show the last message")
    return before if after.startswith(" ") else before.rstrip()


class _GenerationTag(Extension):
    """`{% generation %}` marks what an assistant said, for training; its body is rendered as if it were not there."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().strftime(date_format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own escapes what would be special in HTML; a prompt wants none of that."""
    if indent is not None and indent > MAX_INDENT:
        raise TemplateError(f"tojson indents by {indent}; at most {MAX_INDENT} is allowed")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


_ENVIRONMENT = _environment()


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)
