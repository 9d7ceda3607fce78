"""ChatTemplate: rendered as transformers renders, refused with one clear error."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from octavo.engine import bounded_environment, chat_template
from octavo.engine.chat_template import ChatTemplate, ChatTemplateError

SHOW_MESSAGES = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


def render(source: str | None, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    return template.render([{"role": "user", "content": "hi"}] if messages is None else messages, **options)


def test_special_tokens_tools_and_variables_are_there() -> None:
    source = "{{ bos_token }}{{ tools[0].name }}{{ enable_thinking }}{{ add_generation_prompt }}{{ eos_token }}"
    assert render(source, tools=[{"name": "search"}], enable_thinking=False) == "<s>searchFalseTrue</s>"
    assert render("{{ add_generation_prompt }}{{ tools }}", add_generation_prompt=False) == "FalseNone"


def test_block_lines_leave_no_trace() -> None:
    assert (
        render("{% for m in messages %}\n    {% if true %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}\n") == "user\n"
    )


def test_loop_controls() -> None:
    assert (
        render(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}"
            "{{ i }}{% endfor %}"
        )
        == "02"
    )


def test_tojson_keeps_characters_as_they_are() -> None:
    value = {"k": "안녕 <&'>"}
    assert render("{{ v | tojson }}", v=value) == '{"k": "안녕 <&\'>"}'
    assert render("{{ v | tojson(indent=2) }}", v={"a": 1}) == '{\n  "a": 1\n}'


def test_generation_tag_renders_its_body() -> None:
    assert render("a{% generation %}{{ messages[0].content }}{% endgeneration %}b") == "ahib"


def test_strftime_now() -> None:
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_the_template_may_refuse() -> None:
    with pytest.raises(ChatTemplateError, match="cannot render these messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% if %}", "Expected an expression"),
        ("{{ messages[7].content.x }}", "no element 7"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% include 'x' %}", "no loader"),
    ],
)
def test_a_failing_template_is_one_clear_error(source: str, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        render(source)


def test_a_prompt_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_PROMPT_CHARACTERS", 1000)
    assert len(render("{% for i in range(1000) %}x{% endfor %}")) == 1000
    with pytest.raises(ChatTemplateError, match="more than 1000 characters"):
        render("{% for i in range(1001) %}x{% endfor %}")


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(999) %}" * 3 + "{% endfor %}" * 3,
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    ],
)
def test_a36_a_template_without_end_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_environment, "MAX_RENDER_S", 0.1)
    with pytest.raises(ChatTemplateError, match=r"takes more than 0\.1 s"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * 'x' }}",
        "{{ [0] * 10**9 }}",
        "{{ 9**99999 }}",
        "{% set n = namespace(v=3) %}{% for i in range(99) %}{% set n.v = n.v * n.v %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = n.v + n.v %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = n.v ~ n.v %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = n.v | replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = n.v.replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = [n.v, n.v] | join %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v = n.v.join([n.v] * 3) %}{% endfor %}",
        "{% set n = namespace(v='x') %}{% for i in range(99) %}{% set n.v %}{{ n.v }}{{ n.v }}{% endset %}{% endfor %}",
        "{{ (['x' * 10**6] * 10**6) | map('upper') | join }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x'.center(10**9) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x'.zfill(10**9) }}",
        "{{ ('\t' * 10**6).expandtabs(10**6) }}",
        "{{ ('\n' * 10**6) | indent(10**6) }}",
        "{{ 'x' | indent(10**9, true) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
    ],
)
def test_a36_a_value_without_bound_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"makes a (value|number) of"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '%*d' | format(10**9, 1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ [[1]] | tojson(indent=10**9) }}",
        "{{ lipsum(n=10**6) }}",
    ],
)
def test_a36_a_width_without_bound_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"not written out|indents by|lipsum"):
        render(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a-b' | replace('-', '+') }}{{ 'a-b'.replace('-', '--', 1) }}", "a+ba--b"),
        ("{{ [1, 2] | join(', ') }}{{ ','.join(['a', 'b']) }}{{ [1, 2] | map('string') | join('') }}", "1, 2a,b12"),
        ("{{ 'x' | center(3) }}{{ 'x'.ljust(2) }}{{ '7'.zfill(2) }}", " x x 07"),
        ("{{ 'a\nb' | indent(2) }}{{ 'a' | indent(width=1, first=true) }}", "a\n  b a"),
        ("{{ '%s: %05.1f' | format('a', 1) }}{{ '%d%%' % 5 }}{{ '{:>3}|{}'.format(1, 2) }}", "a: 001.05%  1|2"),
        ("{% set t %}{{ 'a' }}b{% endset %}{{ t }}{{ {'a': 1} | tojson(indent=1) }}", 'ab{\n "a": 1\n}'),
        ("{{ [{'n': 'a'}, {'n': 'b'}] | join('/', attribute='n') }}", "a/b"),
    ],
)
def test_looks_at_the_size_change_nothing(source: str, expected: str) -> None:
    assert render(source) == expected


def test_looks_at_the_clock_change_nothing() -> None:
    source = (
        "{% macro f(a, b='!') %}{{ a ~ b ~ 1 }}{% endmacro %}"
        "{% for i in [1, 2] recursive %}{{ loop.index }}{{ f('x') }}{% else %}none{% endfor %}{{ 2 * 3 + 2**3 }}"
    )
    assert render(source) == "1x!12x!114"


CONVERSATION = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello, "}]


@pytest.mark.parametrize("suffix", ["", "<end>"])
def test_the_last_message_is_continued(suffix: str) -> None:
    source = SHOW_MESSAGES + suffix + "{% if add_generation_prompt %}[assistant:{% endif %}"
    assert render(source, CONVERSATION, continue_final_message=True) == "[user:Say hello.][assistant:Hello, "
    stripped = source.replace("m.content", "m.content | trim")
    assert render(stripped, CONVERSATION, continue_final_message=True) == "[user:Say hello.][assistant:Hello,"


def test_what_cannot_be_continued_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="does not show the last message"):
        render("{{ messages[0].content }}", CONVERSATION, continue_final_message=True)
    for messages in ([], [{"role": "assistant", "tool_calls": []}]):
        with pytest.raises(ChatTemplateError, match="needs a last message with content"):
            render(SHOW_MESSAGES, messages, continue_final_message=True)


def test_another_template_may_be_given() -> None:
    assert render(SHOW_MESSAGES, chat_template="{{ bos_token }}{{ messages | length }}") == "<s>1"


def test_without_a_template_the_remedy_is_named() -> None:
    with pytest.raises(ChatTemplateError, match="no chat template: use completions"):
        render(None)


def test_developer_is_system() -> None:
    assert render(SHOW_MESSAGES, [{"role": "developer", "content": "be brief"}]) == "[system:be brief]"


def test_content_in_parts_becomes_one_string() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render(SHOW_MESSAGES, [{"role": "user", "content": parts}]) == "[user:one\ntwo]"
    assert render(SHOW_MESSAGES, [{"role": "user", "content": []}]) == "[user:]"


@pytest.mark.parametrize("message", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_absent_content_is_empty(message: dict[str, Any]) -> None:
    assert render(SHOW_MESSAGES, [message]) == "[assistant:]"


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "type 'image_url'; this model reads text only"),
        ({"type": "text"}, "must be an object with type and text"),
        ({"type": "text", "text": 5}, "must be an object with type and text"),
        ("text", "must be an object with type and text"),
    ],
)
def test_parts_that_are_not_text_are_named(part: Any, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        render(SHOW_MESSAGES, [{"role": "user", "content": [part]}])


def test_messages_are_not_changed() -> None:
    messages: list[dict[str, Any]] = [{"role": "developer", "content": [{"type": "text", "text": "a"}]}]
    render(SHOW_MESSAGES, messages)
    assert messages == [{"role": "developer", "content": [{"type": "text", "text": "a"}]}]
