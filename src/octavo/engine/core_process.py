"""The engine's own process: builds the engine, then takes requests and steps for as long as the front process lives.

    python -m octavo.engine.core_process --fd N [--log-format text|json]

`N` is this process's end of the socket pair it shares with the front (see wire.py); the configuration comes over it.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from octavo.core.admission import RequestRejected
from octavo.core.engine_core import EngineCore
from octavo.core.messages import EngineRequest, RequestOutput
from octavo.core.snapshot import take_snapshot
from octavo.engine import wire
from octavo.engine.build import BuiltEngine, build_engine
from octavo.engine.grammar_queue import GrammarQueue
from octavo.engine.log_format import FORMATS, configure_logging
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError

FAREWELL_S = 2.0  # for the front to read the last words

logger = logging.getLogger("octavo.engine")


def main() -> int:
    """Serve the front process at the other end of `--fd`; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the front decides what it means
    parser = argparse.ArgumentParser(prog="octavo.engine.core_process")
    parser.add_argument("--fd", type=int, required=True, help="this process's end of the socket pair")
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="how its log lines look")
    arguments = parser.parse_args()
    configure_logging(arguments.log_format)
    connection = socket.socket(fileno=arguments.fd)
    return CoreProcess(wire.CoreChannel(connection)).run()


class StartError(Exception):
    """The engine cannot be built as asked; the message is for whoever configured it."""


class CoreProcess:
    """The loop around EngineCore: receive, step, send. It waits without polling while there is nothing to do."""

    def __init__(self, channel: wire.CoreChannel) -> None:
        self._channel = channel
        self._step_started_s: float | None = None

    def run(self) -> int:
        """Serve until the front says Shutdown or is gone (0), or until the engine fails (1)."""
        threading.Thread(target=self._watch_front, name="watch-front", daemon=True).start()
        try:
            built = self._build()
            grammars = GrammarQueue(built.grammars, self._channel.wake)
            self._loop(built.core, grammars)
            built.core.close()
            grammars.close()
        except (EOFError, ConnectionError):
            return 0
        except StartError as error:
            self._fail(str(error))
            return 1
        except Exception as error:
            logger.exception("the engine failed")
            self._fail(f"{type(error).__name__}: {error}")
            return 1
        return 0

    def _fail(self, message: str) -> None:
        """Tell the front, and let it read that: a process that leaves takes back what it has said last."""
        self._channel.send(wire.Failed(message))
        self._channel.wait_for_shutdown(FAREWELL_S)

    def _build(self) -> BuiltEngine:
        start, *_ = self._channel.receive(wait=True)  # after it, only heartbeats come until Ready is sent
        if not isinstance(start, wire.Start):
            raise wire.WireError(f"the first message is {type(start).__name__}; it must be Start")
        try:
            checkpoint = open_checkpoint(start.config.model)
            built = build_engine(start.config, checkpoint, on_phase=lambda name: self._channel.send(wire.Phase(name)))
        except (CheckpointError, OSError, ValueError) as error:
            raise StartError(str(error)) from error
        self._channel.send(
            wire.Ready(
                limits=built.limits,
                config=built.config,
                memory=built.memory,
                vocab_size=built.vocab_size,
                eos_token_ids=built.eos_token_ids,
                sampling_defaults=built.sampling_defaults,
            )
        )
        return built

    def _loop(self, core: EngineCore, grammars: GrammarQueue) -> None:
        while True:
            for message in self._channel.receive(wait=not core.has_unfinished):
                match message:
                    case wire.Add(request) if request.sampling_params.structured_outputs is None:
                        self._add(core, request)
                    case wire.Add(request):
                        grammars.add(request)
                    case wire.Learn(vocabulary):
                        grammars.learn(vocabulary)
                    case wire.Abort(request_id, index):
                        grammars.abort(request_id)
                        core.abort_request(request_id, index)
                    case wire.Inspect():
                        self._channel.send(_inspect(core, grammars))
                    case wire.FrontHeartbeat():
                        pass  # that it came with the right number is all
                    case wire.Shutdown():
                        return
                    case wire.Start():
                        raise wire.WireError("a second Start; the engine is built once")
            for request, rejection in grammars.take():
                if rejection is None:
                    self._add(core, request)
                else:
                    self._reject(request, rejection)
            if core.has_unfinished:
                for output in self._step(core):
                    if output.finish_reason is not None:
                        grammars.release(output.request_id, output.index)

    def _add(self, core: EngineCore, request: EngineRequest) -> None:
        try:
            core.add_request(request)
        except RequestRejected as rejection:
            self._reject(request, rejection)

    def _reject(self, request: EngineRequest, rejection: RequestRejected) -> None:
        message = wire.Rejected(request.request_id, rejection.code, str(rejection), rejection.param)
        self._channel.send(message)

    def _step(self, core: EngineCore) -> Sequence[RequestOutput]:
        self._step_started_s = time.monotonic()
        result = core.step()
        self._step_started_s = None
        *early, last = wire.split_outputs(result.outputs)
        for outputs in early:
            self._channel.send(wire.Outputs(tuple(outputs), replace(result.stats, num_tokens=0)))  # counted once
        self._channel.send(wire.Outputs(tuple(last), result.stats))
        return result.outputs

    def _watch_front(self) -> None:
        """Tell the front that this process lives; leave when the front is gone, whatever the loop is busy with."""
        try:
            while not self._channel.wait_for_front_to_leave(wire.HEARTBEAT_S):
                started_s = self._step_started_s
                step_s = 0.0 if started_s is None else time.monotonic() - started_s
                self._channel.send(wire.Heartbeat(step_s))
        except OSError:
            pass  # the front left while this was being sent
        os._exit(0)


def _inspect(core: EngineCore, grammars: GrammarQueue) -> wire.Inspection:
    scheduler = core.scheduler
    sizes = {"choices": sum(1 for _ in scheduler.requests()), "deadlines": scheduler.num_deadlines}
    return wire.Inspection(take_snapshot(scheduler), sizes | grammars.table_sizes())


if __name__ == "__main__":
    exit_status = main()
    logging.shutdown()
    os._exit(exit_status)  # at once: after a failure, taking the model apart would only add to the log
