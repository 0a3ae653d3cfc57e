"""How tests wait: for a condition, never for a time. A busy machine is slow, not wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

HANG_SECONDS: Final = 600.0
"""After which something counts as hung. It ends a test that would never end, and is no claim about speed."""


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Return when the condition holds; asked again and again, for counters and offsets have no event.

    A broker that says "not yet" (a coordinator that loads its groups, a leader about to be elected) is asked
    again too. Raises TimeoutError when the condition does not hold within HANG_SECONDS.
    """
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            try:
                holds = condition()
                if await holds if isinstance(holds, Awaitable) else holds:
                    return
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(0.02)
