"""Accumulates verdicts between folds, because writing a row costs the same for one verdict as for
thousands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from stream.dashboard.counting.ends import FoldedOffsets
from stream.dashboard.counting.verdict_columns import Sum, VerdictColumns, pieces
from stream.futures import retrieved

FOLD_SECONDS: Final = 1.0, 10.0
"""Bounds of the time, in seconds, between folds while more verdicts wait. It is a quarter of the lag."""
FOLD_VERDICTS: Final = 100_000
FOLD_BYTES: Final = 64 << 20
"""Maximum number of verdicts per fold, and of their bytes, exceeded by at most one batch."""


class Pending:
    """The verdicts read since the last fold, within one generation of the consumer group."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.sums: dict[int, list[Sum]] = {}
        """Partition -> sums in order. No sum spans the last folded offset of any row."""
        self.events: list[Any] = []
        """Events to acknowledge once everything is folded."""
        self._sends: list[asyncio.Task[None]] = []
        self._verdicts = self._bytes = 0
        self._decided = 0
        """Time of the last verdict, in seconds since the epoch."""
        self.done = asyncio.Event()
        """Set once everything is folded and sent, or dropped."""
        self._occupied, self._due, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def add(self, event: Any, batch: VerdictColumns, ends: FoldedOffsets) -> None:
        """Add the verdicts of an event. `ends` are those of its partition."""
        sums = self.sums.setdefault(batch.partition, [])
        first = sums[-1].last if sums else int(batch.offsets[0])
        for piece in pieces(batch, ends.between(first, batch.last)):
            if not sums or ends.between(sums[-1].last, int(piece.offsets[0])):
                sums.append(Sum())
            sums[-1].add(piece)
        self.events.append(event)
        self._verdicts += len(batch)
        self._bytes += batch.nbytes
        self._decided = int(batch.seconds[-1])
        self._occupied.set()

    def send(self, work: Coroutine[Any, Any, None]) -> None:
        """Start `work`, which must complete before the events are acknowledged."""
        self._sends.append(retrieved(asyncio.create_task(work)))

    async def finish_sends(self) -> None:
        """Wait for all work started by `send`, and raise its first error."""
        sends, self._sends = self._sends, []
        await asyncio.gather(*sends)

    def drop(self) -> None:
        """Discard everything after a rebalance, since it will be redelivered."""
        for each in (self._occupied, self._due, self._room, self.done):
            each.set()

    async def wait_for_room(self, *, idle: bool) -> None:
        """Report that batches were added; `idle` means no more wait. Returns when more may be added."""
        full = self._verdicts >= FOLD_VERDICTS or self._bytes >= FOLD_BYTES
        if idle or full:
            self._due.set()
        if full:
            await self._room.wait()

    async def wait_until_due(self) -> None:
        """Wait until it is time to fold."""
        await self._occupied.wait()
        least, most = FOLD_SECONDS
        behind = time.time() - self._decided
        with suppress(TimeoutError):
            async with asyncio.timeout(min(most, max(least, behind / 4))):
                await self._due.wait()
        self._room.set()
