"""Says that brokers are away in the log of a role that only waits for records, and would say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.errors import KafkaError

from stream.errors import BrokerError
from stream.kafka import broker_metadata, clients
from stream.kafka.outage import Outage
from stream.settings import Settings

ASK_SECONDS: Final = 5.0
"""Time between questions, and for each answer."""


async def report_outages(ask: Callable[[], Awaitable[object]]) -> None:
    """Call `ask`, which any broker can answer, until cancelled, and log while nobody does."""
    outage = Outage("a broker")
    while True:
        await asyncio.sleep(ASK_SECONDS)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await ask()
        except TimeoutError:
            outage.note(f"none has answered for {ASK_SECONDS:g} s")
        except (BrokerError, KafkaError, OSError) as error:
            outage.note(error)
        else:
            outage.end()


@asynccontextmanager
async def reported_outages(settings: Settings) -> AsyncIterator[bool]:
    """Context manager that does so while entered, with a client of its own. Waits for brokers to begin with,
    and yields True."""
    async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
        reporting = asyncio.create_task(report_outages(lambda: broker_metadata.cluster_id(client)))
        try:
            yield True
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
