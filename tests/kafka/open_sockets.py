"""The end of TLS connections: a client that closes one says good-bye, and waits for the broker to say it too.

aiokafka does not wait for that after a connection was refused. An event loop that ends in between leaves the
socket open, and the next garbage collection would blame whichever test is running then.
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
async def farewells() -> AsyncIterator[None]:
    """Leaves no connection of this loop half closed; names those that nobody closes."""
    yield
    try:
        await until(lambda: not _open_sockets())
    except TimeoutError:
        pytest.fail(f"connections left open: {_open_sockets()}")
