"""Reads a topic for as long as the dashboard runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from stream.errors import NeardupError
from stream.kafka import clients

RETRY_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


async def keep_reading(read: Callable[[], Awaitable[None]], event: str) -> None:
    """Call `read` until cancelled, again when it returns or fails, which is logged as `event`. Raises what
    says that the topic may not be read."""
    while True:
        try:
            await read()
        except clients.DENIED:
            raise
        except (KafkaError, NeardupError, OSError) as error:
            log.warning(event, error=str(error), retry_seconds=RETRY_SECONDS)
        await asyncio.sleep(RETRY_SECONDS)
