"""octavo serve: a model over HTTP."""

from __future__ import annotations

import errno
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import EngineOptions

if TYPE_CHECKING:
    from octavo.engine.async_engine import AsyncEngine

BACKLOG = 2048  # connections that wait while the server is busy


@dataclass(frozen=True, kw_only=True)
class ServeOptions(EngineOptions):
    """What `octavo serve` can be told."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000
    model_names: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="Name of the model for clients; may be given more than once."),
    ] = None
    shutdown_timeout: Annotated[
        float, typer.Option(help="Seconds that running requests get to finish after Ctrl-C.", min=0)
    ] = 30.0


def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP, by the OpenAI API. Ctrl-C lets running requests finish, a second one ends them."""
    config = options.engine_config()
    listener = _listen(options.host, options.port)  # first of all: clients wait for a port, not for a refusal
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"octavo listens on {address} and loads {options.model}", flush=True)

    import uvloop

    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.engine_status import EngineUnavailableError
    from octavo.server.http_server import HttpServer

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)

    async def run() -> None:
        names = options.model_names or ()
        await HttpServer(AsyncEngine(config), names, listener, options.shutdown_timeout).run(_print_start)

    try:
        uvloop.run(run())
    except EngineUnavailableError as error:
        typer.echo(f"octavo: {error}", err=True)
        raise typer.Exit(1) from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else str(error)
        typer.echo(f"octavo: cannot listen on {host}:{port}: {reason}; choose another with --host and --port", err=True)
        raise typer.Exit(1) from None


def _print_start(engine: AsyncEngine) -> None:
    print(engine.ready.memory.render())
    print(f"ready after {engine.status.elapsed_s:.2f} s; Ctrl-C stops", flush=True)
