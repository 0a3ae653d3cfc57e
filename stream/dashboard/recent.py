"""The latest verdicts: a bounded list, and those who want to hear of new ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from stream.dashboard.answers import SeenVerdict
from stream.dashboard.rows import Event, decode
from stream.kafka import clients, cluster
from stream.kafka.verdict_values import VerdictReader
from stream.settings import Settings

KEPT: Final = 5000
TAIL: Final = 100
"""Records of each partition that are read again after a start."""
TAIL_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.25
"""A listener hears at most this often: a browser cannot show more."""
MOST_AT_ONCE: Final = 50
MOST_LISTENERS: Final = 100


class TooManyListenersError(Exception):
    """So many are listening that another one is refused."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A verdict, numbered as it came."""

    sequence: int
    event: Event

    def answer(self) -> SeenVerdict:
        """As the API shows it."""
        return SeenVerdict(self.sequence, self.event.verdict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which verdicts somebody wants."""

    host: str | None = None
    verdicts: frozenset[str] = frozenset()
    """Empty for all."""

    def __call__(self, seen: Seen) -> bool:
        """Whether this one."""
        return (not self.host or seen.event.host == self.host) and (
            not self.verdicts or seen.event.verdict.verdict in self.verdicts
        )


@dataclass(slots=True)
class Recent:
    """The last KEPT verdicts."""

    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT))
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _listeners: set[asyncio.Event] = field(default_factory=set)
    _read_before: dict[int, int] = field(default_factory=dict)
    """Partition -> end of what `fill` has read: the agent tells of it too."""

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def tell(self, events: list[Event]) -> None:
        """New verdicts have come."""
        for event in events:
            if event.offset >= self._read_before.get(event.partition, 0):
                self.seen.append(Seen(next(self._numbers), event))
        for listener in self._listeners:
            listener.set()

    def latest(self, wanted: Wanted, limit: int, before: int | None) -> list[Seen]:
        """The newest first, below the number `before`."""
        matching = (
            each
            for each in reversed(self.seen)
            if (before is None or each.sequence < before) and wanted(each)
        )
        return list(itertools.islice(matching, limit))

    @asynccontextmanager
    async def listening(self, wanted: Wanted) -> AsyncIterator[AsyncIterator[list[Seen]]]:
        """New verdicts as they come, newest first, at most MOST_AT_ONCE each PAUSE_SECONDS.

        An empty list says that others came. Raises TooManyListenersError.
        """
        if len(self._listeners) >= MOST_LISTENERS:
            raise TooManyListenersError
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            yield self._news(news, wanted)
        finally:
            self._listeners.discard(news)

    async def _news(self, news: asyncio.Event, wanted: Wanted) -> AsyncIterator[list[Seen]]:
        told = self.seen[-1].sequence if self.seen else 0
        while True:
            await news.wait()
            news.clear()
            fresh = itertools.islice(reversed(self.seen), self.seen[-1].sequence - told)
            told = self.seen[-1].sequence
            yield list(itertools.islice(filter(wanted, fresh), MOST_AT_ONCE))
            await asyncio.sleep(PAUSE_SECONDS)

    async def fill(self, settings: Settings, topic: str) -> None:
        """Read the end of the topic, so that a restarted dashboard does not begin empty."""
        async with cluster.connect(settings) as client:
            bounds = await cluster.log_bounds(client, [topic], committed=True)
        open_ones = {key: bound.end for key, bound in bounds.items() if bound.start < bound.end}
        if not open_ones:
            return
        consumer = clients.consumer(
            settings,
            group_id=None,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        await consumer.start()
        found: list[Event] = []
        reader = VerdictReader(settings)
        try:
            consumer.assign(list(open_ones))
            for key, end in open_ones.items():
                consumer.seek(key, max(bounds[key].start, end - TAIL))
            async with asyncio.timeout(TAIL_SECONDS):
                while open_ones:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [decode(each.partition, each.offset, reader.json(each)) for each in records]
                    open_ones = {k: end for k, end in open_ones.items() if await consumer.position(k) < end}
        except TimeoutError:
            pass  # what came will do
        finally:
            await consumer.stop()
        found.sort(key=lambda event: (event.seconds, event.offset))
        self.tell(found)
        for event in found:
            self._read_before[event.partition] = max(
                self._read_before.get(event.partition, 0), event.offset + 1
            )


def answers(seen: Iterable[Seen]) -> list[SeenVerdict]:
    """All of them as the API shows them."""
    return [each.answer() for each in seen]
