"""Verdicts that were read and are not folded yet: added up, until enough of them share the rows' cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from stream.dashboard.batch import Sum, VerdictColumns, pieces
from stream.dashboard.ends import Ends

FOLD_SECONDS: Final = 1.0, 10.0
"""For so long verdicts are added up while more wait: a quarter of what they are behind by, within these."""
FOLD_VERDICTS: Final = 100_000
"""So many are folded at once at most; one batch more, to be exact."""


class Pending:
    """What was read in one generation of the group, since the last fold."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.sums: dict[int, list[Sum]] = {}
        """By partition, in order. No sum reaches over the end of what some row has."""
        self.events: list[Any] = []
        """To be acknowledged once all is folded."""
        self._sends: list[asyncio.Task[None]] = []
        self._verdicts = 0
        self._decided = 0
        """When the last verdict was, seconds since the epoch."""
        self._begun, self._due, self._taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def add(self, event: Any, batch: VerdictColumns, ends: Ends) -> None:
        """Add up the verdicts of an event. `ends` are those of its partition."""
        sums = self.sums.setdefault(batch.partition, [])
        first = sums[-1].last if sums else int(batch.offsets[0])
        for piece in pieces(batch, ends.between(first, batch.last)):
            if not sums or ends.between(sums[-1].last, int(piece.offsets[0])):
                sums.append(Sum())
            sums[-1].add(piece)
        self.events.append(event)
        self._verdicts += len(batch)
        self._decided = int(batch.seconds[-1])
        self._begun.set()

    def send(self, work: Coroutine[Any, Any, None]) -> None:
        """Have this done before the events are acknowledged."""
        self._sends.append(asyncio.create_task(work))

    async def sent(self) -> None:
        """Wait until all of `send` is done. Raises what it raises."""
        sends, self._sends = self._sends, []
        await asyncio.gather(*sends)

    def drop(self) -> None:
        """Forget it: it comes again."""
        asyncio.gather(*self._sends, return_exceptions=True)
        for each in (self._begun, self._due, self._taken):
            each.set()

    async def added(self, *, idle: bool) -> None:
        """Batches were added; `idle` where no more wait. Returns once others may be."""
        full = self._verdicts >= FOLD_VERDICTS
        if idle or full:
            self._due.set()
        if full:
            await self._taken.wait()

    async def due(self) -> None:
        """Wait until it is best folded."""
        await self._begun.wait()
        least, most = FOLD_SECONDS
        behind = time.time() - self._decided
        with suppress(TimeoutError):
            async with asyncio.timeout(min(most, max(least, behind / 4))):
                await self._due.wait()
        self._taken.set()
