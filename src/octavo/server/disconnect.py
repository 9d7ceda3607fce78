"""Noticing that the client has gone, which frameworks do for streams at best."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

Result = TypeVar("Result")


async def finish_or_disconnect(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`; if the client leaves first, `work` is cancelled and ClientDisconnect raised.

    Call it only after the request's body has been read: what `receive` brings then is the client's leaving.
    """
    worker = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({worker, listener}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        raise ClientDisconnect
    finally:
        listener.cancel()
        worker.cancel()
        await asyncio.gather(worker, listener, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
