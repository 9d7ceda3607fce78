"""octavo serve: a model over HTTP."""

from __future__ import annotations

import dataclasses
import errno
import logging
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import EngineOptions, shared_values

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.request_tracer import RequestTracer
    from octavo.server.server_config import ServerConfig

BACKLOG = 2048  # connections that wait while the server is busy


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(EngineOptions):
    """What `octavo serve` can be told."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000
    model_names: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="Names of the model for clients; answers carry the first."),
    ] = None
    api_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            envvar="OCTAVO_API_KEY",
            help="Keys, one of which clients must send; prefixes are shared among the requests of one key only.",
        ),
    ] = None
    allowed_origins: Annotated[
        list[str] | None,
        typer.Option("--allowed-origins", help="Origins of web pages that may ask from a browser; by default any."),
    ] = None
    max_body_bytes: Annotated[
        int, typer.Option(help="Largest body of a request; refused before it is read.", min=1)
    ] = 16 << 20
    ssl_certfile: Annotated[str | None, typer.Option(help="PEM file of a certificate, to speak HTTPS.")] = None
    ssl_keyfile: Annotated[str | None, typer.Option(help="PEM file of its key; by default in the same file.")] = None
    max_queued_requests: Annotated[
        int | None,
        typer.Option(help="How many may wait beyond --max-num-seqs; the others get 429. By default 4 times these."),
    ] = None
    max_queued_tokens: Annotated[
        int | None,
        typer.Option(help="Prompt tokens that may wait together; by default 4 times what the KV cache holds."),
    ] = None
    metrics_prefix: Annotated[
        str, typer.Option(help="Before the names at /metrics; vllm: for what expects vLLM's.")
    ] = "octavo:"
    tool_call_parser: Annotated[
        str, typer.Option(help="How the model writes tool calls: hermes, llama3_json, mistral, mistral_plain, or auto.")
    ] = "auto"
    reasoning_parser: Annotated[
        str, typer.Option(help="How the model writes its reasoning: qwen3, deepseek_r1, mistral, or auto.")
    ] = "auto"
    trust_request_chat_template: Annotated[
        bool, typer.Option("--trust-request-chat-template", help="Let requests bring a chat template of their own.")
    ] = False
    queue_timeout_s: Annotated[
        float | None,
        typer.Option("--queue-timeout", help="Seconds after which a request that has not begun gets 503.", min=0.001),
    ] = None
    request_timeout_s: Annotated[
        float | None,
        typer.Option("--request-timeout", help="Seconds after which a request ends, as far as it is.", min=0.001),
    ] = None
    restarts: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start an engine that dies again, once; else end, with 1.")
    ] = False
    otlp_traces_endpoint: Annotated[
        str | None,
        typer.Option(help="Where to send OpenTelemetry spans: http://HOST:4318/v1/traces. Needs the extra otel."),
    ] = None
    log_format: Annotated[str, typer.Option(help="text, or json: an object a line.")] = "text"
    shutdown_timeout_s: Annotated[
        float, typer.Option("--shutdown-timeout", help="Seconds for running requests to finish after Ctrl-C.", min=0)
    ] = 30.0

    def engine_config(self) -> EngineConfig:
        """The part about the engine, which is known by the first of the model's names."""
        name = next(iter(self.model_names or ()), None)
        return dataclasses.replace(super().engine_config(), served_model_name=name)

    def server_config(self) -> ServerConfig:
        """The part about the server. Exits with a usage error if it is not valid."""
        from octavo.server.server_config import ServerConfig

        lists = {
            "model_names": tuple(self.model_names or ()),
            "api_keys": tuple(self.api_keys or ()),
            "allowed_origins": tuple(self.allowed_origins or ["*"]),
        }
        try:
            return ServerConfig(**shared_values(self, ServerConfig) | lists)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP, by the OpenAI API. Ctrl-C lets running requests finish, a second one ends them."""
    config, server_config = options.engine_config(), options.server_config()
    tracer = _connect_tracer(options.otlp_traces_endpoint)
    listener = _listen(options.host, options.port)  # first of all: clients wait for a port, not for a refusal
    host, port = listener.getsockname()[:2]
    scheme = "https" if server_config.ssl_certfile else "http"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    print(f"octavo listens on {address} and loads {options.model}", flush=True)

    import uvloop

    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.engine_status import EngineUnavailableError
    from octavo.engine.log_format import configure_logging
    from octavo.server.http_server import CertificateError, HttpServer

    configure_logging(server_config.log_format)

    async def run() -> None:
        engine = AsyncEngine(
            config, metrics_prefix=options.metrics_prefix, log_format=options.log_format, tracer=tracer
        )
        await HttpServer(engine, server_config, listener).run(_print_start)

    try:
        uvloop.run(run())
    except (EngineUnavailableError, CertificateError) as error:
        if options.log_format == "text":
            typer.echo(f"octavo: {error}", err=True)
        else:
            logging.getLogger("octavo.server").critical("%s", error)
        raise typer.Exit(1) from None
    finally:
        if tracer is not None:
            tracer.close()


def _connect_tracer(endpoint: str | None) -> RequestTracer | None:
    from octavo.engine.request_tracer import RequestTracer

    try:
        return RequestTracer.connect(endpoint) if endpoint else None
    except ImportError as error:
        raise typer.BadParameter(str(error), param_hint="--otlp-traces-endpoint") from None


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
