"""Case A35 of the reliability list: no byte that comes from outside is ever run as code."""

from __future__ import annotations

import ast
import asyncio
import os
import pickle
import random
import socket
from pathlib import Path

import pytest

import octavo
from octavo.engine import wire

SOURCES = sorted(Path(octavo.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__"}


def test_a35_nothing_unpickles_or_evaluates() -> None:
    assert len(SOURCES) > 100
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
            names.append(getattr(node, "module", None) or "")
            assert not {name.partition(".")[0] for name in names} & MODULES, path
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in CALLS), path
                assert "allow_pickle" not in {keyword.arg for keyword in node.keywords}, path


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self._marker),)


def frame(payload: bytes, num_bytes: int | None = None) -> bytes:
    length = len(payload) if num_bytes is None else num_bytes
    return wire.HEAD.pack(length, 0) + payload


def hostile_frames(marker: Path) -> list[bytes]:
    rng = random.Random(35)
    pickles = [pickle.dumps(Bomb(marker), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    good = wire.encode_frame(wire.Abort("req-1"), 0)
    return [
        *map(frame, pickles),
        *pickles,
        frame(b"x", 1 << 30),
        frame(b"", 0),
        *(frame(rng.randbytes(rng.randrange(1, 200))) for _ in range(100)),
        *(frame(good[wire.HEAD.size : end]) for end in range(wire.HEAD.size, len(good))),
    ]


def test_a35_the_engine_process_takes_nothing_but_its_own_messages(tmp_path: Path) -> None:
    for data in hostile_frames(tmp_path / "marker"):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            channel = wire.CoreChannel(theirs)
            with pytest.raises((wire.WireError, EOFError)):
                while True:
                    assert channel.receive(wait=True) == []
    assert not (tmp_path / "marker").exists()


async def receive(data: bytes) -> wire.CoreMessage | None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await wire.read_core_message(reader, 0)


def test_a35_nor_does_the_front(tmp_path: Path) -> None:
    for data in hostile_frames(tmp_path / "marker"):
        try:
            assert asyncio.run(receive(data)) is None
        except wire.WireError:
            continue
    assert not (tmp_path / "marker").exists()
