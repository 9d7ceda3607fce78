"""From what requests ask for to grammars: compiled once, refused within bounds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import StructuredOutputsParams
from octavo.structured import compiler as compiler_module
from octavo.structured.compiler import GrammarCompiler
from octavo.structured.vocabulary import Vocabulary
from tests.structured.byte_vocabulary import VOCABULARY, allowed_ids, ids_of


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler()
    compiler.learn(VOCABULARY)
    yield compiler
    compiler.close()


def regex(pattern: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(regex=pattern)


def test_every_kind_is_compiled(compiler):
    for params, first in (
        (StructuredOutputsParams(json={"const": 1}), "1"),
        (StructuredOutputsParams(json_object=True), "{"),
        (regex("a|b"), "ab"),
        (StructuredOutputsParams(choice=("yes", "no")), "yn"),
        (StructuredOutputsParams(grammar='start: "x"'), "x"),
        (StructuredOutputsParams(grammar='root ::= "y"'), "y"),
    ):
        grammar = compiler.compile(params)
        assert allowed_ids(compiler.matcher(params)) == sorted(ids_of(first))
        assert compiler.compile(params) is grammar


def nested(keyword: str, depth: int) -> dict[str, Any]:
    if depth == 0:
        return {"type": "string", "maxLength": 5}
    part = nested(keyword, depth - 1)
    return {keyword: [part, {"type": "object", "properties": {"a": part}}]}


OPTIONAL = {f"p{i}": {"type": "string", "maxLength": i} for i in range(5000)}
LETTERS = {"allOf": [{"pattern": f"(a|b|c)*{'x' * i}", "type": "string", "minLength": i} for i in range(1, 30)]}
# Refused, and why; those of the second half are too much for one compilation, wherever it finds that out.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "half a class": ({"regex": "["}, "unclosed character class"),
    "look-around": ({"regex": "(?=a)b"}, "look-around"),
    "nothing": ({"regex": r"[^\s\S]"}, "no text satisfies it"),
    "unknown rule": ({"grammar": "start: foo"}, "unknown name"),
    "broken EBNF": ({"grammar": "root ::= ("}, "Expected"),
    "unknown token": ({"grammar": "start: <|nope|>"}, "unknown special token"),
    "unknown type": ({"json": {"type": "banana"}}, "banana"),
    "contradiction": ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "minimum"),
    "itself": ({"json": {"$ref": "#"}}, "no text satisfies it"),
    "somewhere else": ({"json": {"$ref": "http://127.0.0.1:9/a.json"}}, "http://127.0.0.1:9/a.json"),
    "a file": ({"json": {"$ref": "file:///etc/passwd"}}, "file:///etc/passwd"),
    "not": ({"json": {"not": {}}}, "not"),
    "oneOf, 11 deep": ({"json": nested("oneOf", 11)}, "oneOf"),
    "parentheses": ({"grammar": "start: " + "(" * 20_000}, "nested"),
    "parentheses in EBNF": ({"grammar": "root ::= " + "(" * 20_000}, "nested"),
    "a large multiple": ({"json": {"type": "integer", "multipleOf": 999_983}}, "too complex"),
    "patterns at once": ({"json": LETTERS}, "too complex"),
    "5,000 lengths": ({"json": {"type": "object", "properties": OPTIONAL}}, "too complex"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a38_what_cannot_be_compiled_is_refused_in_one_line(compiler, name):
    fields, reason = REFUSED[name]
    with pytest.raises(RequestRejected) as caught:
        compiler.compile(StructuredOutputsParams(**fields))
    assert (caught.value.code, caught.value.param) == ("invalid_grammar", "structured_outputs")
    message = str(caught.value)
    assert message.startswith("structured_outputs: this ") and reason in message and "\n" not in message
    compiler.compile(regex("still there"))


DOUBLINGS = [f"R{i}: R{i + 1} R{i + 1}" for i in range(20)]
MONSTROUS: dict[str, dict[str, Any]] = {
    "repeated": {"regex": "(a+)+$"},
    "a million times": {"regex": "((a{100}){100}){100}"},
    "doubled 20 times": {"grammar": "\n".join(["start: R0", *DOUBLINGS, 'R20: "a"'])},
    "no forcing is not to be undone": {"grammar": '%llguidance {"no_forcing": false}\nstart: /a{1000000}/'},
    "a constant": {"json": {"const": "abc " * 60_000}},
    "an enum": {"json": {"enum": [f"value-{i:06}" for i in range(15_000)]}},
    "items": {"json": {"type": "array", "items": {"const": "x"}, "minItems": 10**9}},
    "a length": {"json": {"type": "string", "minLength": 10**9}},
    "a maximum": {"json": {"type": "integer", "minimum": 0, "maximum": 2 * 10**10}},
    "anything": {"json": {}},
    "anyOf, 6 deep": {"json": nested("anyOf", 6)},
    "recursion": {"json": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
    "ambiguity": {"grammar": 'start: e\ne: e e | e e e | "a" |'},
}


@pytest.mark.parametrize("name", MONSTROUS)
def test_a38_what_looks_monstrous_is_served_in_bounded_steps(compiler, name):
    params = StructuredOutputsParams(**MONSTROUS[name])
    grammar = compiler.compile(params)
    matcher = compiler.matcher(params)
    for _ in range(50):  # by and by a step may be too much; then it is an error of this sequence
        going = allowed_ids(matcher)
        if matcher.error is not None or matcher.is_complete:
            break
        matcher.accept(going[-1:])
    assert grammar is compiler.compile(params)


def test_a_grammar_that_nobody_holds_is_kept_for_a_while(compiler, monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_KEPT_GRAMMARS", 3)
    held = compiler.compile(regex("held"))
    for i in range(4):
        compiler.compile(regex(f"{i}x"))
    gc.collect()
    assert allowed_ids(compiler.matcher(regex("held"))) == ids_of("h")
    assert allowed_ids(compiler.matcher(regex("1x"))) == ids_of("1")
    with pytest.raises(KeyError):
        compiler.matcher(regex("0x"))
    del held


def test_the_process_that_checks_is_replaced_when_it_is_gone(compiler):
    compiler.compile(regex("before"))
    process = compiler._checker._process
    process.kill()
    process.wait()
    compiler.compile(regex("after"))
    assert compiler._checker._process.pid != process.pid


def test_a_model_without_an_end_has_no_grammars():
    compiler = GrammarCompiler()
    compiler.learn(Vocabulary((b"a", b"b"), (), ()))
    with pytest.raises(RequestRejected, match="no end-of-sequence token"):
        compiler.compile(regex("a"))
    compiler.close()


def test_a_vocabulary_comes_out_of_json_as_it_went_in():
    assert Vocabulary.from_json(VOCABULARY.to_json().encode()) == VOCABULARY
