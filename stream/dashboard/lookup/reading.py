"""Reads a topic for as long as the dashboard runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from stream.errors import NeardupError
from stream.kafka import clients
from stream.kafka.outage import Outage

RETRY_SECONDS: Final = 5.0
STEADY_SECONDS: Final = 60.0
"""Whatever was read for so long was there."""


async def keep_reading(read: Callable[[], Awaitable[None]], wanted: str) -> None:
    """Call `read` until cancelled, again when it returns or fails. The log says that `wanted` is waited for.
    Raises what says that the topic may not be read."""
    outage = Outage(wanted)
    while True:
        began = time.monotonic()
        try:
            await read()
        except clients.DENIED:
            raise
        except (KafkaError, NeardupError, OSError) as error:
            if time.monotonic() - began > STEADY_SECONDS:
                outage.end()
            outage.note(error)
        await asyncio.sleep(RETRY_SECONDS)
