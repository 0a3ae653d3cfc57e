"""Completes the closing handshake of TLS connections (close_notify in both directions).

aiokafka does not wait for it after a refused connection. If the event loop ends before it, the socket stays
open, and a later garbage collection would blame the test that is running then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.waiting import until


def _open_sockets() -> list[str]:
    transports = getattr(asyncio.get_running_loop(), "_transports", {})  # asyncio has no public list of them
    sockets = [transport.get_extra_info("socket") for transport in list(transports.values())]
    return [repr(each) for each in sockets if each is not None and each.fileno() != -1]


@asynccontextmanager
async def open_sockets() -> AsyncIterator[None]:
    """Wait until no connection of this loop is half closed. Reports connections that were never closed."""
    yield
    try:
        await until(lambda: not _open_sockets())
    except TimeoutError:
        pytest.fail(f"connections left open: {_open_sockets()}")
