"""Flushes of a judge's state: every `flush_seconds`, in a thread beside the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from stream.futures import retrieved
from stream.judge.state.state import State
from stream.roles.judge.stats import JudgeStats
from stream.roles.judge.watch import JudgeWatch

log = structlog.get_logger()


class Flushes:
    """Flushes a state in the background, one flush at a time."""

    def __init__(self, seconds: float, stats: JudgeStats, watch: JudgeWatch) -> None:
        self._seconds, self._stats, self._watch = seconds, stats, watch
        self._applied, self._last_flush = 0, 0.0
        self._flushing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def beside(self, state: State) -> AsyncIterator[None]:
        """Flush this state while entered. Waits on exit for a running flush, whose error closing the state
        meets again."""
        self._applied, self._last_flush = state.meta.applied, time.monotonic()
        try:
            yield
        finally:
            if self._flushing is not None:
                await asyncio.wait([self._flushing])

    def begin_if_due(self, state: State) -> None:
        """Start a flush if one is due and something was applied since. Raises the error of the last flush."""
        if self._flushing is not None:
            if not self._flushing.done():
                return
            self._flushing.result()
            self._flushing = None
        applied = state.meta.applied
        if applied > self._applied and time.monotonic() - self._last_flush > self._seconds:
            self._applied, self._last_flush = applied, time.monotonic()
            log.info("progress", **self._stats.fields(state))
            self._flushing = retrieved(asyncio.create_task(asyncio.to_thread(self._flush, state)))

    def _flush(self, state: State) -> None:
        with self._watch.stage("flush"):
            state.flush()
        self._watch.note_flush(state)
