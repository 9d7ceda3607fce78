"""The size budget counts what it says, and lets through what is just within."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_sizes


def violations(root: Path, name: str, text: str) -> list[str]:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [str(violation) for violation in check_sizes.check_tree(root)]


def function_of(num_lines: int) -> str:
    return "def long():\n" + "    pass\n" * (num_lines - 1)


def class_of(num_lines: int) -> str:
    return "class Large:\n" + "    x = 0\n" * (num_lines - 1)


@pytest.mark.parametrize("folder", ["src", "tools", "benchmarks", "tests"])
def test_a_function_may_have_50_lines(tmp_path, folder):
    assert violations(tmp_path, f"{folder}/page.py", function_of(50)) == []
    [violation] = violations(tmp_path, f"{folder}/page.py", "# one line above\n" + function_of(51))
    assert violation == f"{folder}/page.py:2: long: 51 lines, limit 50: give its steps names of their own"


def test_a_coroutine_and_a_method_are_functions_too(tmp_path):
    assert len(violations(tmp_path, "src/page.py", "async " + function_of(51))) == 1
    method = "class Page:\n" + "".join(f"    {line}\n" for line in function_of(51).splitlines())
    assert len(violations(tmp_path, "src/page.py", method)) == 1


def test_a_class_may_have_250_lines_but_in_tests_any_number(tmp_path):
    assert violations(tmp_path, "src/page.py", class_of(250)) == []
    assert violations(tmp_path, "tests/page.py", class_of(251)) == []
    [violation] = violations(tmp_path, "src/page.py", class_of(251))
    assert "Large: 251 lines, limit 250" in violation


@pytest.mark.parametrize("name", ["src/page.py", "tests/page.py", "csrc/page.cpp", "csrc/page.h"])
def test_a_file_may_have_400_lines(tmp_path, name):
    assert violations(tmp_path, name, "\n" * 400) == []
    [violation] = violations(tmp_path, name, "\n" * 401)
    assert violation == f"{name}:1: file of 401 lines, limit 400: split it by noun"


@pytest.mark.parametrize(
    "signature",
    ["a, b, c, d, e, f, g", "self, a, b, c, d, e, f, g", "cls, a, b, c, *, d, e, f, g", "a, b, /, c, d, e, *f, **g"],
)
def test_a_function_may_take_seven_arguments_besides_self(tmp_path, signature):
    assert violations(tmp_path, "src/page.py", f"def turn({signature}): ...\n") == []
    [violation] = violations(tmp_path, "src/page.py", f"def turn({signature.replace('a, ', 'a, a2, ', 1)}): ...\n")
    assert "turn: 8 arguments, limit 7" in violation


def test_a_test_may_take_any_number_of_arguments(tmp_path):
    assert violations(tmp_path, "tests/page.py", "def turn(a, b, c, d, e, f, g, h): ...\n") == []


@pytest.mark.parametrize(
    ("name", "forbidden"),
    [
        ("src/utils.py", "utils"),
        ("tests/core/helpers.py", "helpers"),
        ("csrc/common.h", "common"),
        ("src/misc/page.py", "misc"),
    ],
)
def test_a_file_or_folder_is_not_named_for_nothing(tmp_path, name, forbidden):
    [violation] = violations(tmp_path, name, "")
    assert violation == f"{name}:1: named '{forbidden}': name it for the noun that it holds"


def test_the_total_counts_src_and_csrc_alone(tmp_path, monkeypatch):
    violations(tmp_path, "src/page.py", "\n" * 3)
    violations(tmp_path, "csrc/page.cpp", "\n" * 4)
    violations(tmp_path, "tests/page.py", "\n" * 100)
    assert check_sizes.count_budget_lines(tmp_path) == 7
    monkeypatch.setattr(check_sizes, "MAX_TOTAL_LINES", 7)
    assert list(check_sizes.check_tree(tmp_path)) == []
    monkeypatch.setattr(check_sizes, "MAX_TOTAL_LINES", 6)
    [violation] = check_sizes.check_tree(tmp_path)
    assert "7 lines, limit 6" in str(violation)


@pytest.mark.parametrize(("num_lines", "status"), [(50, 0), (51, 1)])
def test_the_exit_status_tells(tmp_path, num_lines, status):
    violations(tmp_path, "src/page.py", function_of(num_lines))
    run = subprocess.run([sys.executable, check_sizes.__file__, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == status
    assert f"{num_lines} of {check_sizes.MAX_TOTAL_LINES} lines" in run.stdout
