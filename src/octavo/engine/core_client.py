"""CoreClient: the front's handle on the engine process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

from octavo.config import EngineConfig
from octavo.engine import wire

EXIT_TIMEOUT_S = 5.0
STDERR = 2  # the file descriptor: what stands in sys.stderr need not be a file


class CoreClient:
    """One engine process, started for this front and never outliving it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._num_sent = 0
        self._num_received = 0

    @classmethod
    async def launch(cls, config: EngineConfig, log_format: str) -> CoreClient:
        """Start the process, which logs in one of log_format.FORMATS, and tell it what to build; does not wait."""
        ours, theirs = socket.socketpair()
        with theirs:
            options = ["--fd", str(theirs.fileno()), "--log-format", log_format]
            process = subprocess.Popen(
                [sys.executable, "-m", "octavo.engine.core_process", *options],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        client = cls(process, reader, writer)
        client.send(wire.Start(config))
        return client

    @property
    def process_id(self) -> int:
        """The engine process's id."""
        return self._process.pid

    def send(self, message: wire.FrontMessage) -> None:
        """Send without waiting. To a process that is gone, nothing is sent: `receive` tells of its end."""
        if not self._writer.is_closing():
            self._writer.write(wire.encode_frame(message, self._num_sent))
            self._num_sent += 1

    async def receive(self) -> wire.CoreMessage | None:
        """The next message; None when the process is gone."""
        self._num_received += 1
        return await wire.read_core_message(self._reader, self._num_received - 1)

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()

    async def close(self, timeout_s: float = EXIT_TIMEOUT_S) -> int:
        """Ask the process to leave, kill it if it does not, and return its exit status."""
        self.send(wire.Shutdown())
        try:
            return await asyncio.to_thread(self._process.wait, timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)
        finally:
            self._writer.close()
