"""Polling of a worker's consumer, with backpressure: fetching is paused while memory is full."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from stream.errors import StaleError
from stream.ops.health import Health
from stream.roles.worker.watch import WorkerStats

POLL_MS: Final = 500
POLL_RECORDS: Final = 64
"""Records taken from the consumer before the memory in use is checked again."""
FETCH_SECONDS: Final = 0.01
"""Delay of the next fetch after pages arrived, because a fetch costs worker and broker as much as a small
page."""


class Polling:
    """Polls for pages of a topic, and pauses partitions while more than `memory` bytes are held."""

    def __init__(
        self, consumer: AIOKafkaConsumer, topic: str, memory: int, stats: WorkerStats, health: Health
    ) -> None:
        self._consumer, self._topic, self._memory = consumer, topic, memory
        self._stats, self._health = stats, health

    async def poll(self) -> dict[TopicPartition, list[Any]]:
        """Return the next pages, at most POLL_RECORDS. Raises StaleError if they were deleted from the
        log."""
        try:
            records: dict[TopicPartition, list[Any]] = await self._consumer.getmany(
                timeout_ms=POLL_MS, max_records=POLL_RECORDS
            )
        except OffsetOutOfRangeError as error:
            raise StaleError(
                f"topic {self._topic}: the log does not hold the next offset ({error}): retention took "
                "pages before they were read, or the topic was recreated; a restart declares what is lost"
            ) from error
        return records

    async def gather(self, keys: Sequence[TopicPartition], count: int) -> None:
        """Delay the next fetch after a poll that returned `count` pages, so that more pages gather. Without
        effect if more pages are buffered, or if there were none."""
        if self._stats.paused or not 0 < count < POLL_RECORDS:
            await asyncio.sleep(0)  # getmany does not yield while it has buffered records
            return
        # A later poll is not enough: aiokafka would fetch at once and return with the first page.
        self._consumer.pause(*keys)
        await asyncio.sleep(FETCH_SECONDS)
        if not self._stats.paused:
            self._consumer.resume(*keys)

    def throttle(self, keys: Sequence[TopicPartition], held: int) -> None:
        """Backpressure: pause fetching while more than `memory` is held, until half of it is free."""
        stats = self._stats
        stats.held_bytes, stats.most_held_bytes = held, max(stats.most_held_bytes, held)
        if not stats.paused and held > self._memory:
            self._consumer.pause(*keys)
            stats.paused = True
        elif stats.paused and held <= self._memory // 2:
            self._consumer.resume(*keys)
            stats.paused = False

    async def rest(self, keys: Sequence[TopicPartition], seconds: float) -> None:
        """Pause fetching, but keep polling, because the group expels a member that does not poll."""
        until = time.monotonic() + seconds
        self._consumer.pause(*keys)
        while (left := until - time.monotonic()) > 0:
            self._health.turn()
            await self._consumer.getmany(timeout_ms=min(POLL_MS, int(left * 1000) + 1))
        self._consumer.resume(*keys)
