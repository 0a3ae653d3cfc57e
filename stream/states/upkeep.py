"""Flushes, scrubs and checkpoints of a state, beside the role that writes it, and metrics of its disk.

Each runs in the background, one at a time. An error ends the role at its next call of `attend`.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from stream.failpoints import reach
from stream.futures import retrieved
from stream.kafka.member import member_id
from stream.ops.metrics import CheckpointMetrics
from stream.settings import Settings
from stream.states.checkpoint_maker import CheckpointMaker
from stream.states.scrubs import Scrubs
from stream.states.state import OpenState

TURN_SECONDS: Final = 0.5


class Upkeep:
    """Keeps a state durable and sound while it is open."""

    def __init__(
        self,
        settings: Settings,
        kind: str,
        directory: Path,
        metrics: CheckpointMetrics,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        """`kind` is that of the state, `report` is called before each flush. Raises SettingsError if
        `checkpoints` names no store."""
        self._seconds, self._metrics, self._report = settings.flush_seconds, metrics, report
        self._checkpoints = CheckpointMaker(settings, kind, directory, metrics)
        self._scrubs = Scrubs(directory, settings.scrub_hours, self._note_scrub)
        self._flushing: asyncio.Task[None] | None = None
        self._instance = directory.with_suffix(".instance")
        """File with the random id of the directory."""

    @asynccontextmanager
    async def beside(self, state: OpenState) -> AsyncIterator[None]:
        """Keep up this state while entered. Waits on exit for what runs, of which closing the state meets the
        error of a flush again."""
        self._state, self._flushed, self._last_flush = state, state.meta, time.monotonic()
        self._note_disk()
        async with self._checkpoints.beside(member_id(self._instance)), self._scrubs.beside():
            try:
                yield
            finally:
                if self._flushing is not None:
                    await asyncio.wait([self._flushing])

    def request(self) -> str | None:
        """Return the request for a checkpoint that waits for an answer."""
        return self._checkpoints.request()

    def attend(self, request: str | None = None) -> None:
        """Begin what is due: a flush every `flush_seconds` in which something was written, a checkpoint, or
        the one that this request asks for. Raises what went wrong in the background, and DamagedStateError if
        a scrub has found damage."""
        self._begin_flush_if_due()
        self._scrubs.refuse_damage()
        self._checkpoints.begin_if_due(self._state, request)

    async def run(self) -> None:
        """Attend until cancelled, for a role without a loop of its own."""
        while True:
            self.attend(self.request())
            await asyncio.sleep(TURN_SECONDS)

    def _begin_flush_if_due(self) -> None:
        if self._flushing is not None:
            if not self._flushing.done():
                return
            self._flushing.result()
            self._flushing = None
        meta = self._state.meta
        if meta is not self._flushed and time.monotonic() - self._last_flush > self._seconds:
            self._flushed, self._last_flush = meta, time.monotonic()
            self._report()
            self._flushing = retrieved(asyncio.create_task(asyncio.to_thread(self._flush)))

    def _flush(self) -> None:
        with self._metrics.stage_seconds.labels("flush").time():
            self._state.store.flush()
        reach("flush.ended")
        self._note_disk()

    def _note_disk(self) -> None:
        store = self._state.store
        self._metrics.state_bytes.set(store.disk_bytes())
        self._metrics.state_free_bytes.set(shutil.disk_usage(store.path).free)

    def _note_scrub(self, ended: float, damaged: int) -> None:
        """Report the end of the last scrub, in seconds since the epoch, and the number of damaged files."""
        self._metrics.scrubbed.set(ended)
        self._metrics.damaged_files.set(damaged)
