"""Erases forgotten pages from a state directory, beside what is done with it."""

from __future__ import annotations

import asyncio

import structlog

from stream.failpoints import reach
from stream.futures import retrieved
from stream.judge.state.state import State
from stream.kafka.in_flight import in_thread

log = structlog.get_logger(__name__)


class Erasing:
    """Erases what was forgotten from the directory of a state, a few pages at a time, and rewrites the files
    that had them in the background."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._compacting: asyncio.Task[int] | None = None

    @property
    def is_due(self) -> bool:
        """Whether `attend` has something to do."""
        if self._compacting is not None:
            return self._compacting.done()
        return not self._state.meta.forgetting.is_erased

    async def attend(self) -> None:
        """Do the next part. No batch may be ahead of the store. Raises the error of what was done in the
        background."""
        state = self._state
        if self._compacting is None:
            if not await in_thread(state.blank_forgotten):
                reach("forget.erased")
                self._compacting = retrieved(asyncio.create_task(asyncio.to_thread(state.forgotten.compact)))
        elif self._compacting.done():
            compacting, self._compacting = self._compacting, None
            erased = compacting.result()
            reach("forget.compacted")
            await in_thread(state.note_erased, erased)
            await in_thread(state.flush)
            log.info("erased", decided=erased)

    async def close(self) -> None:
        """Wait for what is done in the background. What is not erased is erased after the next start."""
        if self._compacting is not None:
            await asyncio.wait([self._compacting])
