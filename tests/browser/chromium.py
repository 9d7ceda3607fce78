"""A headless Chromium, spoken to by its DevTools protocol over two pipes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Page:
    """One page in a browser of its own. Use it as a context."""

    def __init__(self, width: int = 1280, height: int = 1000, *, is_dark: bool = False) -> None:
        assert PROGRAM is not None, "no Chromium is installed"
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = [*OPTIONS, f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank"]
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser reads from file descriptor 3 and writes to 4, which must not be taken while they are made.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write)]
        script = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._browser = subprocess.Popen(
            ["bash", "-c", script, PROGRAM, *options], pass_fds=ends, stderr=subprocess.DEVNULL
        )
        for end in (to_read, to_write, *ends):
            os.close(end)
        self._received = b""
        self._num_calls = 0
        self._session: dict[str, str] = {}
        self.messages: list[dict[str, Any]] = []  # what the page told unasked: errors among it
        [target, *_] = [info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *error: object) -> None:
        self._browser.terminate()
        self._browser.wait(30)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for. Raises AssertionError where it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, condition: str, timeout_s: float = 60) -> None:
        """Wait until a JavaScript expression is true."""
        code = f"""new Promise((done, fail) => {{
            const end = Date.now() + {1000 * timeout_s};
            const look = () => {condition} ? done() : Date.now() > end ? fail("still not so") : setTimeout(look, 50);
            look();
        }})"""
        self.evaluate(code)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What the page threw or logged as an error."""
        self.evaluate("0")  # whatever was told until now is read
        thrown = [message for message in self.messages if message["method"] == "Runtime.exceptionThrown"]
        logged = [message["params"]["entry"] for message in self.messages if message["method"] == "Log.entryAdded"]
        return thrown + [entry for entry in logged if entry["level"] == "error"]

    @property
    def urls(self) -> list[str]:
        """Everything that was asked for."""
        self.evaluate("0")
        sent = [message for message in self.messages if message["method"] == "Network.requestWillBeSent"]
        return [message["params"]["request"]["url"] for message in sent]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol. Raises AssertionError where it fails."""
        self._num_calls += 1
        request = {"id": self._num_calls, "method": method, "params": params} | self._session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while (message := self._receive()).get("id") != self._num_calls:
            self.messages.append(message)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "the browser has left"
            self._received += chunk
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
