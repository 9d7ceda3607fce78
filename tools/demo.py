"""Starts a server on the demo model, asks it eight different questions at once, prints the answers, stops it.

    python tools/demo.py

Exits with 1 if anything goes wrong.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Name three primary colors.",
    "Why is the sky blue?",
    "What does a compiler do?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "Explain gravity to a child.",
)
MAX_TOKENS = 64
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """What came back for one question."""

    question: str
    text: str
    num_tokens: int
    elapsed_s: float


def main() -> int:
    """Run the demo; return the exit status."""
    fetching = [sys.executable, str(Path(__file__).with_name("fetch_model.py"))]
    model = subprocess.run(fetching, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", "from octavo.cli import main; main()", "serve", model, "--port", str(port)]
    server = subprocess.Popen(command)
    try:
        wait_until_ready(server, url)
        started_s = time.monotonic()
        with ThreadPoolExecutor(len(QUESTIONS)) as pool:
            answers = list(pool.map(lambda question: ask(url, question), QUESTIONS))
        elapsed_s = time.monotonic() - started_s
    finally:
        status = stop(server)
    for answer in answers:
        print(f"\n{answer.question}  [{answer.num_tokens} tokens in {answer.elapsed_s:.2f} s]\n{answer.text.strip()}")
    num_tokens = sum(answer.num_tokens for answer in answers)
    print(f"\n{len(answers)} answers at once: {num_tokens} tokens in {elapsed_s:.2f} s, {num_tokens / elapsed_s:.1f}/s")
    return 0 if status == 0 and all(answer.text.strip() for answer in answers) else 1


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server takes requests. Raises RuntimeError if it leaves, TimeoutError if it takes too long."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if server.poll() is not None:
            raise RuntimeError(f"the server left with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health"):
                return
        except (urllib.error.URLError, ConnectionError):  # nobody listens yet, or 503: it loads
            time.sleep(0.1)
    raise TimeoutError(f"the server was not ready within {START_TIMEOUT_S:.0f} s")


def ask(url: str, question: str) -> Answer:
    """Ask one question and wait for the whole answer. Raises urllib.error.HTTPError if there is none."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": MAX_TOKENS, "temperature": 0}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started_s = time.monotonic()
    with urllib.request.urlopen(request) as response:
        answer: dict[str, Any] = json.load(response)
    text = answer["choices"][0]["message"]["content"]
    return Answer(question, text, answer["usage"]["completion_tokens"], time.monotonic() - started_s)


def stop(server: subprocess.Popen[bytes]) -> int:
    """Stop the server as Ctrl-C does; return its exit status."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        return server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
