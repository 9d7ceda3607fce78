"""BoundedHttp: uvicorn's HTTP, for clients who do not mean well: nobody is waited for who sends half a request."""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from octavo.server.errors import ApiError

MAX_HEAD_BYTES = 64 << 10  # of the address and the headers together
HEAD_TIMEOUT_S = 20.0  # for these to arrive, and for the rest of a body that is not wanted any more


class BoundedHttp(HttpToolsProtocol):
    """One connection. How long a body may take is up to whoever reads it (`request_body`).

    The methods named `on_...` are the parser's; what one raises ends in `send_400_response`.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._num_head_bytes = 0
        self._is_in_head = False
        self._is_message_complete = True
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or was cut off."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More bytes of a request, or of several."""
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():  # no single header is complete, maybe
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it, in the form of every other error."""
        error = ApiError(400, "invalid_http", "this is not a valid HTTP request")
        if self._num_head_bytes > MAX_HEAD_BYTES:
            message = f"address and headers have more than {MAX_HEAD_BYTES} bytes; put what is long into the body"
            error = ApiError(431, "headers_too_large", message)
        body = msgspec.json.encode(error.envelope)
        headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[error.status] + headers + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request is here."""
        super().on_message_begin()
        self._is_in_head, self._is_message_complete = True, False
        self._num_head_bytes = 0
        self._restart_timer()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One whole header."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._is_in_head = False
        self._timer.cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self._is_message_complete = True
        self._timer.cancel()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The whole answer is out. Whoever was refused and still sends has HEAD_TIMEOUT_S for the rest."""
        super().on_response_complete()
        if not self._is_message_complete:
            self._restart_timer()

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise ValueError(f"{self._num_head_bytes} bytes of headers; at most {MAX_HEAD_BYTES} are allowed")

    def _restart_timer(self) -> None:
        self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)
