"""A real `octavo serve` in a process of its own, as its users start it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

TIMEOUT_S = 60.0


class ServerProcess:
    """Starts `octavo serve` on a free port. Use it as a context: at its end the server is stopped if it still runs."""

    def __init__(self, model: Path, *options: str) -> None:
        command = [sys.executable, "-c", "from octavo.cli import main; main()", "serve", str(model), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.log: list[str] = []
        assert self.process.stdout is not None
        first_line = self.process.stdout.readline()
        address = re.search(r"https?://\S+", first_line)
        assert address, first_line + self.process.stdout.read()
        self.url = address[0]
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        self.client = httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.send_signal(signal.SIGINT)
            self.wait()

    def wait_until_ready(self) -> ServerProcess:
        until(self._is_ready)
        return self

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            self._reader.join(TIMEOUT_S)
            raise AssertionError("the server has left: " + "".join(self.log))
        return self.client.get("/health").status_code == 200

    def wait(self) -> int:
        """The exit status, once the server has left."""
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return status

    def engine_process_ids(self) -> list[int]:
        """The children of the server, from the kernel."""
        return children_of(self.process.pid)

    def load(self) -> dict[str, Any]:
        loaded: dict[str, Any] = self.client.get("/load").json()
        return loaded

    def is_idle(self) -> bool:
        """Whether no request runs or waits and every block is free."""
        load = self.load()
        return load["num_running"] == load["num_waiting"] == 0 and load["num_free_blocks"] == load["num_blocks"]


def children_of(process_id: int) -> list[int]:
    """Ids of the processes whose parent this is."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent_of(path) == process_id]


def is_running(process_id: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for the condition; fails when it takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.02)


def _parent_of(path: Path) -> int | None:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return None
