"""The server's door with real sockets: TLS, keys, paths that only a raw client sends, and what listens at all."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from octavo.config import EngineConfig
from octavo.engine.async_engine import AsyncEngine
from octavo.server.http_server import CertificateError, HttpServer
from octavo.server.server_config import ServerConfig
from tests.e2e.server_process import ServerProcess, children_of, until

KEY = "sk-door"
BODY = {"prompt": "Hi", "max_tokens": 3, "temperature": 0}
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of our own for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=octavo"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(
        tiny_model, "--max-model-len", "64", "--served-model-name", "a", "b/c", "--api-key", KEY
    ) as server:
        yield server.wait_until_ready()


def ask_raw(server: ServerProcess, request: bytes) -> int:
    """The status of what the server says to these bytes."""
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 0), timeout=60) as connection:
        connection.sendall(request)
        return int(connection.makefile("rb").readline().split()[1])


def test_https(tiny_model, certificate):
    cert_file, key_file = certificate
    with ServerProcess(tiny_model, "--ssl-certfile", str(cert_file), "--ssl-keyfile", str(key_file)) as server:
        assert server.url.startswith("https://")
        server.client = httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=str(cert_file)))
        server.wait_until_ready()
        answers = [server.client.post("/v1/completions", json=BODY).json()["choices"] for _ in range(2)]
        assert answers[0] == answers[1]
        events = server.client.post("/v1/completions", json=BODY | {"stream": True}).text
        assert events.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http"))
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url)  # a certificate that nobody vouches for


def test_a_certificate_that_cannot_be_used_is_named(certificate, tmp_path):
    cert_file, key_file = certificate
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for pair in ((tmp_path / "missing.pem", key_file), (empty, key_file), (cert_file, cert_file)):
        config = ServerConfig(ssl_certfile=str(pair[0]), ssl_keyfile=str(pair[1]))
        with socket.socket() as listener, pytest.raises(CertificateError, match=f"{pair[0]} and {pair[1]}: "):
            HttpServer(AsyncEngine(EngineConfig("model")), config, listener)


def test_a_certificate_that_is_missing_is_one_line(tiny_model):
    server = ServerProcess(tiny_model, "--ssl-certfile", "missing.pem")
    assert server.wait() == 1
    assert server.log[-1].startswith("octavo: cannot use the certificate in missing.pem: ")
    server.client.close()


def test_names_and_keys(server):
    assert server.client.get("/v1/models").status_code == 401
    listed = server.client.get("/v1/models", headers=BEARER).json()["data"]
    assert [model["id"] for model in listed] == ["a", "b/c"]
    answers = [
        server.client.post("/v1/completions", json=BODY | {"model": name}, headers=headers).json()["choices"]
        for name in ("a", "b/c")
        for headers in (BEARER, {"x-api-key": KEY})
    ]
    assert answers == answers[:1] * 4


RAW_REQUESTS = [
    b"GET http://octavo/v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET http://octavo/health/../v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET //v1/models HTTP/1.1\r\nHost: x/health?\r\n\r\n",
    b"GET /v1/../v1/models HTTP/1.1\r\nHost: health\r\n\r\n",
    b"GET /health/../v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /health/%2e%2e/v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /health%2f%2e%2e%2fv1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /v1%2fmodels HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /V1/MODELS HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /v1/models. HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /v1/models;/health HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /v1/models?x=/health HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"OPTIONS /v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"HEAD /v1/models HTTP/1.1\r\nHost: octavo\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: octavo\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"GET /v1/models HTTP/1.0\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: octavo\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", RAW_REQUESTS)
def test_a39_no_spelling_comes_past_the_key(server, request_bytes):
    assert ask_raw(server, request_bytes) == 401


def test_a39_what_is_no_http_is_refused(server):
    bad = [
        b"GET /v1/mo dels HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: a\nb\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ]
    for request in bad:
        assert ask_raw(server, request + b"\r\n\r\n") == 400
    assert server.client.get("/health").status_code == 200


def test_headers_have_a_limit(server):
    large = b"x" * 80_000
    for request in (
        b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + large + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\n"
        + b"".join(b"x%d: %s\r\n" % (i, b"y" * 900) for i in range(90))
        + b"\r\n",
        b"GET /" + large + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + large,  # and no end
    ):
        assert ask_raw(server, request) == 431
    assert ask_raw(server, b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + large[:60_000] + b"\r\n\r\n") == 200


def listening_ports(process_id: int) -> set[int]:
    """The TCP ports that this process listens on, from the kernel."""
    inodes = set()
    for entry in Path(f"/proc/{process_id}/fd").iterdir():
        if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry)):
            inodes.add(found[1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_a35_the_only_socket_that_listens_is_the_servers(server):
    processes = [server.process.pid, *children_of(server.process.pid)]
    assert len(processes) == 2
    assert [listening_ports(process_id) for process_id in processes] == [{httpx.URL(server.url).port}, set()]


def test_a26_leaving_in_every_way_and_moment_frees_everything(server):
    """By FIN or RST, before the body is whole, while it is tokenized, queued or decoded; streamed or not; n=3."""
    url = httpx.URL(server.url)
    prompts = ["Hi", "x" * 60]
    for turn in range(48):
        stream, reset, prompt = turn % 2 == 0, turn // 2 % 2 == 0, prompts[turn // 4 % 2]
        fields = f'"stream": {str(stream).lower()}, "n": 3, "ignore_eos": true, "seed": 1, "max_tokens": 60'
        body = f'{{"prompt": "{prompt}", {fields}}}'.encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nx-api-key: {KEY}\r\n\r\n"
        data = head.encode() + body
        connection = socket.create_connection((url.host, url.port or 0), timeout=60)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(data[: len(data) - turn % 3 * 5])
        if turn % 5 == 0 and stream and turn % 3 == 0:
            connection.recv(1)  # the answer has begun
        connection.close()
    until(lambda: is_idle(server))


def is_idle(server: ServerProcess) -> bool:
    load = server.client.get("/load", headers=BEARER).json()
    return load["num_running"] == load["num_waiting"] == 0 and load["num_free_blocks"] == load["num_blocks"]
