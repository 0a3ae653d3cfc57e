"""Waiting in tests: for a condition, never for a fixed time, so that a slow machine does not fail them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.errors import KafkaError

from stream.kafka import broker_metadata
from stream.settings import Settings

T = TypeVar("T")

HANG_SECONDS: Final = 600.0
"""Time after which something counts as hung. It ends a test that would never end, and is no claim about
speed."""


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Poll the condition until it holds, since counters and offsets have no event. What takes long to ask,
    such as an audit, is asked less often: it runs beside the roles that it waits for.

    Retriable errors of a broker (a coordinator that loads its groups, a leader election) count as not yet.
    Raises TimeoutError if the condition does not hold within HANG_SECONDS.
    """
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            began = time.monotonic()
            try:
                holds = condition()
                if await holds if isinstance(holds, Awaitable) else holds:
                    return
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(max(0.02, 2 * (time.monotonic() - began)))


async def until_answer(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
    """Ask until the answer holds, as `until` does, and return it."""
    answers: list[T] = []

    async def holds_now() -> bool:
        answers[:] = [await ask()]
        return bool(holds(answers[0]))

    await until(holds_now)
    return answers[0]


async def until_transactions_end(settings: Settings, topics: list[str]) -> None:
    """Wait until the logs of topics end behind the markers of their transactions, which a broker writes after
    it has confirmed a commit."""
    async with broker_metadata.connect(settings) as client:
        await until_answer(
            lambda: broker_metadata.log_bounds(client, topics),
            lambda bounds: all(each.stable == each.end for each in bounds.values()),
        )
