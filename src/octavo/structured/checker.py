"""GrammarChecker: a process that says, within bounds, whether a grammar can be compiled.

llguidance counts most of its work, but not all: a few dozen bytes of schema can keep it busy for minutes and take
gigabytes. A thread cannot be stopped, a process can.
"""

from __future__ import annotations

import json
import subprocess
import sys

from octavo.structured.vocabulary import Vocabulary


class GrammarChecker:
    """One process, which ends with this one. One thread may use it at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._process = self._start()

    def check(self, kind: str, source: str) -> str:
        """The grammar of a StructuredOutputsParams.constraint in Lark's notation. Raises ValueError, and why.

        Raises OSError if the process is gone; the next call starts another.
        """
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, source]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildProcessError(f"the process that checks grammars ended with status {self._process.wait()}")
        verdict = json.loads(answer)
        if "error" in verdict:
            raise ValueError(verdict["error"])
        return str(verdict["grammar"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "octavo.structured.checker_process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(self._vocabulary.to_json().encode() + b"\n")
        process.stdin.flush()
        return process
