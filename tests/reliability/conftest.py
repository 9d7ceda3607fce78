"""The application over a scripted engine, as the server's own tests have it."""

from __future__ import annotations

from tests.server.conftest import anyio_backend, app, client, core, engine, loading_engine

__all__ = ["anyio_backend", "app", "client", "core", "engine", "loading_engine"]
