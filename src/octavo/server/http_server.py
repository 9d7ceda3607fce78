"""HttpServer: an engine behind a listening socket, from the first connection to the last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.engine_status import EngineState, EngineUnavailableError
from octavo.server.app import create_app
from octavo.server.http_protocol import BoundedHttp
from octavo.server.server_config import ServerConfig

TICK_S = 1.0
KEEP_ALIVE_S = 75  # longer than clients keep idle connections, lest one is closed just as it is used again
FLUSH_TIMEOUT_S = 5  # for responses that are complete and still on their way to the client


logger = logging.getLogger("octavo.server")
logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of whatever nonsense clients send


class CertificateError(Exception):
    """The certificate or its key cannot be used: the message says why."""


class HttpServer:
    """Serves `engine`, which nobody has started, on a socket that listens already.

    The first SIGINT or SIGTERM lets running requests finish for `shutdown_timeout_s`, while new ones get 503; the
    second ends them. An engine that dies is started again once, if the config says so. Raises CertificateError.
    """

    def __init__(self, engine: AsyncEngine, config: ServerConfig, listener: socket.socket) -> None:
        self._engine = engine
        self._listener = listener
        self._shutdown_timeout_s = config.shutdown_timeout_s
        self._num_restarts_left = int(config.restarts)
        settings = uvicorn.Config(
            create_app(engine, config),
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=FLUSH_TIMEOUT_S,
            ssl_certfile=config.ssl_certfile,
            ssl_keyfile=config.ssl_keyfile,
        )
        try:
            settings.load()  # now, not when the model is loaded
        except OSError as error:  # of TLS, too
            files = " and ".join(file for file in (config.ssl_certfile, config.ssl_keyfile) if file)
            raise CertificateError(f"cannot use the certificate in {files}: {error}") from error
        self._server = _Uvicorn(settings)
        self._signals: asyncio.Queue[None] = asyncio.Queue()

    async def run(self, on_ready: Callable[[AsyncEngine], None]) -> None:
        """Serve until a signal; `on_ready` is called whenever the engine has become ready.

        Raises EngineUnavailableError, with the cause, if the engine could not start or has died for good.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signals.put_nowait, None)
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        try:
            await self._engine.start()
            while await self._finish_before_signal(self._engine.wait_until_ready()):
                on_ready(self._engine)
                if not await self._finish_before_signal(self._engine.wait_until_dead()):
                    break
                await self._restart()
            await self._finish_before_signal(self._engine.drain(self._shutdown_timeout_s))
            if self._engine.status.state is EngineState.DEAD:
                raise EngineUnavailableError(self._engine.status)
        finally:
            await self._engine.close()
            self._server.stop()
            await serving

    async def _restart(self) -> None:
        """Start the engine again, or raise the EngineUnavailableError that it is dead for."""
        failure = EngineUnavailableError(self._engine.status)
        if self._num_restarts_left == 0:
            raise failure
        self._num_restarts_left -= 1
        logger.error("%s; it is started again, which happens once", failure)
        await self._engine.restart()

    async def _finish_before_signal(self, work: Coroutine[Any, Any, object]) -> bool:
        """Whether `work` came to its end; a signal cancels it."""
        worker = asyncio.create_task(work)
        waiter = asyncio.create_task(self._signals.get())
        done, pending = await asyncio.wait({worker, waiter}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if worker in done:
            worker.result()
        return worker in done


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves signals to us, as it would stop listening where we still want to say 503; idle, it sleeps."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Close the connections and return from `serve`."""
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # which renews the Date header
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), TICK_S)
