"""Erases pages from a state, beside what is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from stream.failpoints import reach
from stream.futures import retrieved
from stream.kafka.in_flight import in_thread
from stream.states.state import Erasable

log = structlog.get_logger(__name__)


class Erasing:
    """Erases pages from a state, in parts, and rewrites the files that had them in the background.
    Interrupted, it begins anew."""

    def __init__(self, state: Erasable, blank: Callable[[], Awaitable[bool]]) -> None:
        """`blank` removes some of what says what these pages were. It returns whether there may be
        more."""
        self._state, self._blank = state, blank
        self._compacting: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether `attend` has something to do."""
        if self._compacting is not None:
            return self._compacting.done()
        return not self._state.is_erased

    async def attend(self) -> None:
        """Do the next part. No batch may be ahead of the store. Raises the error of what was done in the
        background."""
        state = self._state
        if self._compacting is None:
            self._erasable = state.erasable  # what comes from here on, nobody has blanked
            if not await self._blank():
                reach("erase.blanked")
                self._compacting = retrieved(asyncio.create_task(asyncio.to_thread(state.compact)))
        elif self._compacting.done():
            compacting, self._compacting = self._compacting, None
            compacting.result()
            reach("erase.compacted")
            await in_thread(state.note_erased, self._erasable)
            await in_thread(state.store.flush)
            log.info("erased", until=self._erasable)

    async def close(self) -> None:
        """Wait for what is done in the background. What is not erased is erased after the next start."""
        if self._compacting is not None:
            await asyncio.wait([self._compacting])
