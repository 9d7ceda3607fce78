"""What measures or plans begins at once: it loads nothing of what it measures."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOBODY_LISTENS = "http://127.0.0.1:1"


@pytest.mark.parametrize("command", ["serve", "sweep"])
def test_the_load_generator_needs_neither_numpy_nor_an_engine(command):
    program = f"""
import sys
from octavo.cli import main
sys.argv = ["octavo", "bench", {command!r}, "--base-url", {NOBODY_LISTENS!r}]
try:
    main()
finally:
    print(*sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    modules = set(run.stdout.split())
    assert run.returncode == 1 and "Connect" in run.stderr
    assert "octavo.bench.benchmark" in modules
    assert not {"numpy", "tokenizers", "octavo.engine", "octavo.core", "octavo.server"} & modules
