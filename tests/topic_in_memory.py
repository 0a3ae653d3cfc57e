"""An in-memory topic for tests of readers without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from stream.errors import BrokerError, TrimmedLogError
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.outage import retry_until_answered


class TopicInMemory:
    """In place of a `stream.kafka.reader.TopicReader`: `values` from offset `start` on, `at_once` of them a
    poll."""

    def __init__(self, topic: str, values: Sequence[bytes], start: int = 0, at_once: int = 1000) -> None:
        self.topic, self.position = topic, start
        self._first, self._values, self._at_once = start, values, at_once
        self.silent = False
        """Whether the leader is silent."""
        self.first_time = 0
        """When the first record was appended; each other one a millisecond later."""

    @property
    def stable(self) -> int:
        return self._first + len(self._values)

    @property
    def leader(self) -> int | None:
        return 1

    async def poll(self, seconds: float = 0.2) -> list[Any]:
        await asyncio.sleep(0)
        if self.silent:
            return []
        first = self.position - self._first
        if first < 0:
            raise TrimmedLogError(
                f"topic {self.topic}: offset {self.position} is needed, but it begins at {self._first}"
            )
        found = self._values[first : first + self._at_once]
        records = [
            SimpleNamespace(offset=offset, timestamp=self.first_time + offset - self._first, value=value)
            for offset, value in enumerate(found, self.position)
        ]
        self.position += len(records)
        return records

    def delete_before(self, offset: int) -> None:
        """Delete the first records."""
        self._values = self._values[offset - self._first :]
        self._first = offset

    def seek(self, offset: int) -> None:
        self.position = offset

    async def bounds(self) -> LogBounds:
        if self.silent:
            raise BrokerError(f"topic {self.topic}: its leader does not answer")
        return LogBounds(self._first, self.stable, self.stable)

    async def settled_bounds(self, on_iteration: Callable[[], None] = lambda: None) -> LogBounds:
        return await retry_until_answered(f"topic {self.topic}", self.bounds, on_iteration)

    async def reach(self) -> None:
        """Do nothing: it is always reachable."""


class CountingTopic(TopicInMemory):
    """One that counts what was read."""

    read = 0

    async def poll(self, seconds: float = 0.2) -> list[Any]:
        records = await super().poll(seconds)
        self.read += len(records)
        return records
