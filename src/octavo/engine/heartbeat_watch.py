"""HeartbeatWatch: notices an engine process that stands still, and lets it notice what it did not get."""

from __future__ import annotations

import asyncio

from octavo.engine import wire
from octavo.engine.core_client import CoreClient
from octavo.engine.engine_status import EngineLife

MAX_SILENT_HEARTBEATS = 10  # 5 s
MAX_SILENT_HEARTBEATS_AT_START = 40  # where too much else runs, importing numpy alone takes seconds


class HeartbeatWatch:
    """Sends heartbeats, and kills a process whose own do not come; whoever receives from it then takes it for dead."""

    def __init__(self, client: CoreClient, life: EngineLife) -> None:
        self._client = client
        self._life = life
        self._num_silent = 0

    def hear(self) -> None:
        """The process has said something."""
        self._num_silent = 0

    async def keep(self) -> None:
        """Watch for as long as this is not cancelled."""
        while True:
            # Counted, not timed: while this process is stopped itself, the other's silence means nothing.
            await asyncio.sleep(wire.HEARTBEAT_S)
            self._client.send(wire.FrontHeartbeat())
            self._num_silent += 1
            limit = MAX_SILENT_HEARTBEATS if self._life.has_started else MAX_SILENT_HEARTBEATS_AT_START
            if self._num_silent > limit:
                self._life.failure = f"its process gave no sign of life for {limit * wire.HEARTBEAT_S:.0f} s"
                self._client.kill()
