"""A bounded list of the latest verdicts, with subscriptions to new ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stream.dashboard.answers import HostPages, Neighbours, SeenVerdict
from stream.dashboard.counting.state import State
from stream.dashboard.counting.verdict_columns import NO_HOST, VerdictColumns, batch_of, counted_host, normal

KEPT: Final = 5000
KEPT_BYTES: Final = 16 << 20
"""Bounds of the verdicts that are kept, exceeded by at most one batch: of ordinary ones, 5000 take 3 MB."""
TAIL: Final = 100
"""Verdicts of each partition that are read at startup, or a few more."""
PAUSE_SECONDS: Final = 0.25
"""Minimum interval between updates of a listener; a browser cannot show more."""
MOST_AT_ONCE: Final = 50
MOST_LISTENERS: Final = 100
MOST_NEIGHBOURS: Final = 10


class TooManyListenersError(Exception):
    """The maximum number of listeners is reached."""


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """A filter of verdicts."""

    host: str | None = None
    verdicts: frozenset[str] = frozenset()
    """Kinds of verdicts; empty for all."""

    def __call__(self, batch: VerdictColumns, row: int) -> bool:
        """Return whether a verdict passes the filter."""
        return (not self.host or batch.host_name(row) == self.host) and (
            not self.verdicts or batch.kind(row) in self.verdicts
        )


@dataclass(slots=True)
class LatestVerdicts:
    """The latest verdicts, stored as whole batches of KEPT verdicts or a few more."""

    count: int = 0
    """Number of verdicts so far, which is the number of the last one."""
    _batches: deque[VerdictColumns] = field(default_factory=deque)
    _count: int = 0
    _bytes: int = 0
    _listeners: set[asyncio.Event] = field(default_factory=set)

    @property
    def listeners(self) -> int:
        """Number of listeners."""
        return len(self._listeners)

    def tell(self, batch: VerdictColumns) -> None:
        """Add new verdicts and notify the listeners."""
        self._batches.append(batch)
        self.count += len(batch)
        self._count += len(batch)
        self._bytes += batch.nbytes
        while len(self._batches) > 1 and self._enough_without(self._batches[0]):
            dropped = self._batches.popleft()
            self._count -= len(dropped)
            self._bytes -= dropped.nbytes
        for listener in self._listeners:
            listener.set()

    async def rewrite(self, rewrite: Callable[[bytes], bytes | None]) -> None:
        """Put what `rewrite` returns in place of verdicts, unless that is None."""
        for batch in list(self._batches):
            values = batch.values()
            changed = [rewrite(each) or each for each in values]
            place = next((at for at, each in enumerate(self._batches) if each is batch), None)
            if changed != values and place is not None:
                new = batch_of(batch.partition, batch.offsets.tolist(), changed)
                self._batches[place] = new
                self._bytes += new.nbytes - batch.nbytes
            await asyncio.sleep(0)

    def _enough_without(self, batch: VerdictColumns) -> bool:
        return self._count - len(batch) >= KEPT or self._bytes > KEPT_BYTES

    def _newest(self, most: int = KEPT) -> Iterator[tuple[int, VerdictColumns, int]]:
        """Yield the newest verdicts first: number, batch and row."""
        rows = ((batch, row) for batch in reversed(self._batches) for row in reversed(range(len(batch))))
        for back, (batch, row) in enumerate(itertools.islice(rows, most)):
            yield self.count - back, batch, row

    def latest(
        self, wanted: VerdictFilter, limit: int, before: int | None = None, most: int = KEPT
    ) -> list[SeenVerdict]:
        """Return those of the newest verdicts, newest first, that are wanted and have numbers below
        `before`."""
        matching = (
            SeenVerdict(sequence, batch.record(row))
            for sequence, batch, row in self._newest(most)
            if (before is None or sequence < before) and wanted(batch, row)
        )
        return list(itertools.islice(matching, limit))

    def neighbours(self, host: str) -> Neighbours:
        """Return the hosts that share pages with a host."""
        anchors: Counter[str] = Counter()
        duplicates: Counter[str] = Counter()
        for batch in self._batches:
            for row, each in zip(np.flatnonzero(batch.clustered).tolist(), batch.members, strict=True):
                if each.verdict != "duplicate":  # its anchor is not known
                    continue
                its, anchor = batch.host_name(row), each.duplicate_of
                like = NO_HOST if anchor is None else counted_host(normal(anchor.url))
                if its == host:
                    anchors[like] += 1
                if like == host:
                    duplicates[its] += 1
        return Neighbours(
            host=host,
            verdicts=self._count,
            anchors=[HostPages(*each) for each in anchors.most_common(MOST_NEIGHBOURS)],
            duplicates=[HostPages(*each) for each in duplicates.most_common(MOST_NEIGHBOURS)],
            left_out=sum(max(0, len(each) - MOST_NEIGHBOURS) for each in (anchors, duplicates)),
        )

    @property
    def near_one_anchor(self) -> int:
        """The most pages of one host that are like, or nearest to, one anchor of another host."""
        pages: dict[tuple[str, str], set[str | None]] = defaultdict(set)
        for _, batch, row in self._newest():
            host, record = batch.host_name(row), batch.record(row)
            anchor = record.nearest or record.duplicate_of
            if anchor and record.verdict != "recrawl" and counted_host(normal(anchor.url)) != host:
                pages[host, anchor.id].add(record.url)
        return max(map(len, pages.values()), default=0)

    @asynccontextmanager
    async def listening(self, wanted: VerdictFilter) -> AsyncIterator[AsyncIterator[list[SeenVerdict]]]:
        """Subscribe to new verdicts: lists with the newest first, of at most MOST_AT_ONCE each PAUSE_SECONDS.

        A list is empty if all new verdicts were filtered out. Raises TooManyListenersError.
        """
        if len(self._listeners) >= MOST_LISTENERS:
            raise TooManyListenersError
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            yield self._news(news, wanted)
        finally:
            self._listeners.discard(news)

    async def _news(self, news: asyncio.Event, wanted: VerdictFilter) -> AsyncIterator[list[SeenVerdict]]:
        listed = self.count
        while True:
            await news.wait()
            news.clear()
            fresh, listed = min(KEPT, self.count - listed), self.count
            yield self.latest(wanted, MOST_AT_ONCE, most=fresh)
            await asyncio.sleep(PAUSE_SECONDS)

    def fill(self, state: State) -> None:
        """Begin with the last verdicts that are counted, so that a restarted dashboard does not start
        empty."""
        for batch in sorted(state.newest(TAIL), key=lambda batch: (batch.seconds[0], batch.last)):
            self.tell(batch)
