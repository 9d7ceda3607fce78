"""Requests that wait for their grammars, while the loop goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.engine.grammar_queue import GrammarQueue
from octavo.structured.compiler import GrammarCompiler
from tests.structured.byte_vocabulary import VOCABULARY

TIMEOUT_S = 60.0


class Compiler(GrammarCompiler):
    """Compiles nothing before `may_go_on`; fails in an odd way for the pattern "odd"."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def compile(self, params):
        assert self.may_go_on.wait(TIMEOUT_S)
        if params.regex == "odd":
            raise OSError("the process is gone")
        return super().compile(params)


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    compiler = Compiler()
    yield compiler
    compiler.may_go_on.set()
    compiler.close()


@pytest.fixture
def woken() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def queue(compiler, woken) -> GrammarQueue:
    queue = GrammarQueue(compiler, woken.release)
    queue.learn(VOCABULARY)
    return queue


def request(request_id: str, regex: str, n: int = 1) -> EngineRequest:
    params = SamplingParams(n=n, structured_outputs=StructuredOutputsParams(regex=regex))
    return EngineRequest(request_id, (1,), params, seed=0)


def wait(woken: threading.Semaphore, num_times: int) -> None:
    for _ in range(num_times):
        assert woken.acquire(timeout=TIMEOUT_S)


def test_requests_come_out_in_their_order_with_a_verdict_each(queue, compiler, woken):
    for request_id, regex in (("good", "a"), ("bad", "["), ("odd", "odd"), ("last", "b")):
        queue.add(request(request_id, regex))
    assert list(queue.take()) == []
    compiler.may_go_on.set()
    wait(woken, 4)
    taken = {request.request_id: rejection for request, rejection in queue.take()}
    assert list(taken) == ["good", "bad", "odd", "last"]
    assert taken["good"] is None and taken["last"] is None
    assert isinstance(taken["bad"], RequestRejected) and taken["bad"].code == "invalid_grammar"
    assert isinstance(taken["odd"], RequestRejected) and "the process is gone" in str(taken["odd"])
    assert list(queue.take()) == []


def test_an_aborted_request_does_not_come_out(queue, compiler, woken):
    for request_id in ("first", "second", "third"):
        queue.add(request(request_id, "a"))
    queue.abort("first")  # under way
    queue.abort("third")  # not begun
    queue.abort("unknown")
    compiler.may_go_on.set()
    wait(woken, 3)
    assert [request.request_id for request, _ in queue.take()] == ["second"]


def test_a_grammar_is_held_until_its_last_choice_has_ended(queue, compiler, woken, monkeypatch):
    monkeypatch.setattr("octavo.structured.compiler.MAX_KEPT_GRAMMARS", 0)
    compiler.may_go_on.set()
    queue.add(request("one", "a", n=2))
    wait(woken, 1)
    [(taken, _)] = queue.take()
    structure = taken.sampling_params.structured_outputs
    for index in (1, 0):
        assert compiler.matcher(structure).error is None
        queue.release("one", index)
    with pytest.raises(KeyError):
        compiler.matcher(structure)
    queue.release("unknown", 0)
