"""The process behind GrammarChecker: reads the vocabulary, then a constraint a line; writes a verdict a line.

Each is compiled in a child of its own, which is killed when it takes too much and leaves no memory behind.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

from llguidance import LLTokenizer

from octavo.structured.grammar import Grammar, make_tokenizer
from octavo.structured.lark import lark_grammar
from octavo.structured.vocabulary import Vocabulary

MAX_CPU_S = 0.4  # ten at once wait 5 s at most; the schemas that people write take a few milliseconds
MAX_MEMORY_BYTES = 1 << 30  # of addresses; a process that has nothing to do takes a fifth of them
TOO_COMPLEX = f"it is too complex: compiling takes more than {MAX_CPU_S} s or {MAX_MEMORY_BYTES >> 20} MiB; simplify it"


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent decides what it means
    lines = sys.stdin.buffer
    tokenizer = make_tokenizer(Vocabulary.from_json(lines.readline()))
    for line in lines:
        process_id = os.fork()
        if process_id == 0:
            _limit_this_process()
            _write(_check(tokenizer, *json.loads(line)))
            os._exit(0)
        if os.waitpid(process_id, 0)[1] != 0:
            _write({"error": TOO_COMPLEX})


def _limit_this_process() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # what is out of memory says so at length
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)  # its signal ends the process, whatever it is busy with


def _check(tokenizer: LLTokenizer, kind: str, source: str) -> dict[str, str]:
    try:
        grammar = lark_grammar(kind, source)
        Grammar(tokenizer, grammar)
    except RecursionError:
        return {"error": "it is nested too deeply; simplify it"}
    except MemoryError:
        return {"error": TOO_COMPLEX}
    except Exception as error:  # the converter of GBNF raises nothing more special
        return {"error": str(error)}
    return {"grammar": grammar}


def _write(verdict: dict[str, str]) -> None:
    sys.stdout.buffer.write(json.dumps(verdict).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
