"""Accumulates verdicts between folds, because writing a row costs the same for one verdict as for
thousands."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import Final

from stream.dashboard.counting.history import Block, blocks_of
from stream.dashboard.counting.verdict_columns import Sum, VerdictColumns

FOLD_SECONDS: Final = 1.0, 10.0
"""Bounds of the time, in seconds, between folds while more verdicts wait. It is a quarter of the lag."""
FOLD_VERDICTS: Final = 100_000
FOLD_BYTES: Final = 64 << 20
"""Maximum number of verdicts per fold, and of their bytes, exceeded by at most one batch."""


class Pending:
    """The verdicts read since the last fold."""

    def __init__(self) -> None:
        self.sum: Final = Sum()
        self.blocks: Final = list[Block]()
        self.ends: Final = dict[int, int]()
        """Partition -> the offset after the last verdict."""
        self.since = 0
        """As `Meta.since`."""
        self.forgotten = sys.maxsize
        """As `Meta.forgotten` when the first batch was read."""
        self._verdicts = self._bytes = 0
        self._decided = 0
        """Time of the last verdict, in seconds since the epoch."""
        self.taken: Final = asyncio.Event()
        """Set once no more is added."""
        self.folded: Final = asyncio.Event()
        self._occupied, self._due = asyncio.Event(), asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self.ends)

    def add(self, batch: VerdictColumns, forgotten: int) -> None:
        """Add a batch of verdicts, which say nothing of what decisions before the offset `forgotten`
        forgot."""
        self.sum.add(batch)
        self.blocks.extend(blocks_of(batch))
        self.ends[batch.partition] = batch.last + 1
        self.forgotten = min(self.forgotten, forgotten)
        self._verdicts += len(batch)
        self._bytes += batch.nbytes
        self._decided = int(batch.seconds[-1])
        self._occupied.set()

    async def wait_for_room(self, *, idle: bool) -> None:
        """Report that batches were added; `idle` means no more wait. Returns when more may be added."""
        full = self._verdicts >= FOLD_VERDICTS or self._bytes >= FOLD_BYTES
        if idle or full:
            self._due.set()
        if full:
            await self.taken.wait()

    async def wait_until_due(self) -> None:
        """Wait until it is time to fold."""
        await self._occupied.wait()
        least, most = FOLD_SECONDS
        behind = time.time() - self._decided
        with suppress(TimeoutError):
            async with asyncio.timeout(min(most, max(least, behind / 4))):
                await self._due.wait()
