"""The size budget: how long a function, a class and a file may be, how many arguments a function takes.

A long function does several things, a long class holds several; a reader pays for both. Docstrings and comments
count: a line is a line. Prints each violation with its value, its limit and the remedy; exits with 1 if there is any.

    python tools/check_sizes.py [ROOT]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAX_FUNCTION_LINES = 50
MAX_CLASS_LINES = 250
MAX_FILE_LINES = 400
MAX_ARGUMENTS = 7
MAX_TOTAL_LINES = 29_500  # of src and csrc together

# A file or folder with such a name is named for nothing, so anything may go in.
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "misc"}

PYTHON_FOLDERS = ("src", "tools", "benchmarks", "tests")
CXX_FOLDER = "csrc"
CXX_SUFFIXES = {".cpp", ".h"}
BUDGET_FOLDERS = ("src", CXX_FOLDER)


class Violation(NamedTuple):
    """One thing that is larger than its limit, or that has a name it must not have."""

    place: str  # path:line
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}: {self.remedy}"


def main() -> int:
    """Check the tree at ROOT (the current folder by default); return the exit status."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    violations = list(check_tree(root))
    for violation in violations:
        print(violation)
    print(f"check_sizes: {count_budget_lines(root)} of {MAX_TOTAL_LINES} lines in {' and '.join(BUDGET_FOLDERS)}")
    return 1 if violations else 0


def check_tree(root: Path) -> Iterator[Violation]:
    """Every violation under `root`, its places relative to it."""
    for path in source_files(root, *PYTHON_FOLDERS, CXX_FOLDER):
        place = path.relative_to(root)
        text = path.read_text()
        yield from check_file(place, text)
        if path.suffix == ".py":
            yield from check_python(place, ast.parse(text, str(place)))
    num_lines = count_budget_lines(root)
    if num_lines > MAX_TOTAL_LINES:
        yield Violation(
            " and ".join(BUDGET_FOLDERS),
            f"{num_lines} lines, limit {MAX_TOTAL_LINES}",
            "delete what is not needed, or raise MAX_TOTAL_LINES in tools/check_sizes.py and say why",
        )


def count_budget_lines(root: Path) -> int:
    """Lines of everything that is built and shipped."""
    return sum(len(path.read_text().splitlines()) for path in source_files(root, *BUDGET_FOLDERS))


def source_files(root: Path, *folders: str) -> Iterator[Path]:
    """The Python and C++ files in `folders` of `root`, in a fixed order."""
    for folder in folders:
        suffixes = CXX_SUFFIXES if folder == CXX_FOLDER else {".py"}
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in suffixes)


def check_file(place: Path, text: str) -> Iterator[Violation]:
    """The limits on a file of any language: the names on its path and its length."""
    for name in place.with_suffix("").parts:
        if name in FORBIDDEN_NAMES:
            yield Violation(f"{place}:1", f"named '{name}'", "name it for the noun that it holds")
    num_lines = len(text.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield Violation(f"{place}:1", f"file of {num_lines} lines, limit {MAX_FILE_LINES}", "split it by noun")


def check_python(place: Path, tree: ast.Module) -> Iterator[Violation]:
    """The limits on functions and classes; in a test only the length of a function counts."""
    is_test = place.parts[0] == "tests"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from check_length(place, node, MAX_FUNCTION_LINES, "give its steps names of their own")
            if not is_test:
                yield from check_arguments(place, node)
        elif isinstance(node, ast.ClassDef) and not is_test:
            yield from check_length(place, node, MAX_CLASS_LINES, "move one of its concerns into a class of its own")


def check_length(
    place: Path, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, limit: int, remedy: str
) -> Iterator[Violation]:
    """The limit on lines, from `def` or `class` (decorators not counted) to the last line of the body."""
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if num_lines > limit:
        yield Violation(f"{place}:{node.lineno}", f"{node.name}: {num_lines} lines, limit {limit}", remedy)


def check_arguments(place: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    """The limit on arguments, `self` and `cls` not counted, `*args` and `**kwargs` one each."""
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument]
    num_arguments = len(names) - (names[:1] in (["self"], ["cls"]))
    if num_arguments > MAX_ARGUMENTS:
        yield Violation(
            f"{place}:{node.lineno}",
            f"{node.name}: {num_arguments} arguments, limit {MAX_ARGUMENTS}",
            "pass those that belong together as one dataclass",
        )


if __name__ == "__main__":
    sys.exit(main())
