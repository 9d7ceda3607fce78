"""Importing octavo costs nothing, and its public names are there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import octavo


def modules_after(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it has run `program`."""
    program += "\nimport sys; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return set(output.split())


def test_importing_octavo_loads_nothing_of_it_but_the_package_itself():
    modules = modules_after("import octavo")
    assert "octavo" in modules
    assert not {"numpy", "torch"} & modules
    assert not {name for name in modules if name.startswith("octavo.")}


def test_grammars_cost_nothing_before_the_first():
    assert "llguidance" not in modules_after("import octavo.engine.core_process, octavo.llm, octavo.server.app")


def test_a_name_is_loaded_when_it_is_first_asked_for():
    assert "octavo.config" in modules_after("from octavo import EngineConfig")


@pytest.mark.parametrize("name", octavo.__all__)
def test_every_public_name_is_there(name):
    assert getattr(octavo, name) is not None
    assert name in dir(octavo)


def test_an_unknown_name_is_an_attribute_error_that_names_the_known_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'LLN'.*LLM"):
        octavo.LLN  # noqa: B018


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("octavo.llm", {"asyncio", "jinja2", "msgspec", "rich"}),
        ("octavo.engine.core_process", {"jinja2", "rich", "tokenizers"}),
        ("octavo.server.http_server", {"numpy", "rich", "tokenizers"}),  # the engine process starts only after this
    ],
)
def test_an_engine_does_not_wait_for_what_it_may_not_need(name, unused):
    assert not unused & modules_after(f"import {name}")
