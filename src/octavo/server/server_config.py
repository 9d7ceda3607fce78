"""ServerConfig: what the operator may set about the server, apart from the engine behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.engine.log_format import FORMATS
from octavo.server.turns.formats import AUTO, REASONING_FORMATS, TOOL_FORMATS


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How the server meets its clients. The defaults are those of `octavo serve`."""

    model_names: tuple[str, ...] = ()  # the first is the one in answers; none: the name that the engine found
    api_keys: tuple[str, ...] = ()  # any of them opens the API; none: no key is needed
    allowed_origins: tuple[str, ...] = ("*",)  # web pages that may ask from a browser
    max_body_bytes: int = 16 << 20
    ssl_certfile: str | None = None  # PEM; with one, the server speaks HTTPS only
    ssl_keyfile: str | None = None  # PEM; None: the key is in `ssl_certfile`
    queue_timeout_s: float | None = None  # after which a request that has not begun is refused
    request_timeout_s: float | None = None  # after which a request ends as far as it is
    shutdown_timeout_s: float = 30.0
    restarts: bool = False  # an engine that dies once it was ready: once; otherwise the server ends, with an error
    log_format: str = "text"  # a name of FORMATS
    tool_call_parser: str = AUTO  # how the model writes tool calls: a name of TOOL_FORMATS
    reasoning_parser: str = AUTO  # and how it writes reasoning: a name of REASONING_FORMATS
    trust_request_chat_template: bool = False  # whether requests may bring a template of their own

    def __post_init__(self) -> None:
        if not all(self.api_keys):
            raise ValueError("an API key is empty; give keys that clients can send, or none")
        if self.ssl_keyfile and not self.ssl_certfile:
            raise ValueError("--ssl-keyfile needs --ssl-certfile")
        if self.log_format not in FORMATS:
            raise ValueError(f"--log-format is {self.log_format!r}; it must be one of {', '.join(FORMATS)}")
        _check_format("--tool-call-parser", self.tool_call_parser, TOOL_FORMATS)
        _check_format("--reasoning-parser", self.reasoning_parser, REASONING_FORMATS)


def _check_format(option: str, name: str, known: Mapping[str, object]) -> None:
    if name != AUTO and name not in known:
        raise ValueError(f"{option} is {name!r}; it must be {AUTO}, {', '.join(known)}")
