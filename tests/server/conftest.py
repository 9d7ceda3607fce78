"""The application over an AsyncEngine whose engine process is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from octavo.config import EngineConfig
from octavo.engine import async_engine
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import create_app
from octavo.server.server_config import ServerConfig
from tests.engine.tiny_model import write_tiny_model
from tests.server.scripted_core import ScriptedCore


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
async def core(anyio_backend: str) -> ScriptedCore:
    return ScriptedCore()


@pytest.fixture
async def loading_engine(
    core: ScriptedCore, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncEngine]:
    monkeypatch.setattr(async_engine, "CoreClient", core)
    engine = AsyncEngine(EngineConfig(str(tiny_model)))
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
async def engine(loading_engine: AsyncEngine, core: ScriptedCore) -> AsyncEngine:
    core.become_ready()
    await loading_engine.wait_until_ready()
    return loading_engine


@pytest.fixture
def app(engine: AsyncEngine) -> Starlette:
    return create_app(engine, ServerConfig(model_names=("tiny", "org/alias")))


@pytest.fixture
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


def client_of(app: Starlette) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://octavo")
