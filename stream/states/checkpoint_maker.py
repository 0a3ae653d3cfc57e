"""Checkpoints of a role's state: every `checkpoint_interval`, in a thread beside its loop.

The state is linked while the role goes on, so a checkpoint is of one moment however long its upload takes.
Nothing depends on it: if its store fails, the role says so and tries again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import described
from stream.checkpoints.manifest import Manifest
from stream.checkpoints.requests import CheckpointAnswer, CheckpointRequests
from stream.checkpoints.uploads import Uploads, linked, yield_processors
from stream.errors import CheckpointError, OutputError, SettingsError
from stream.futures import retrieved
from stream.ops.metrics import CheckpointMetrics
from stream.settings import Settings
from stream.states.state import OpenState
from stream.tables.store.scrub_child import Throttle

FIRST_PAUSE: Final = 10.0
"""Seconds from a failed checkpoint to the next attempt. They double with each further failure, up to the
interval."""

log = structlog.get_logger(__name__)


class _StoppedError(Exception):
    """The role ends, and with it the upload."""


class CheckpointMaker:
    """Makes checkpoints of a state, one at a time, if the setting `checkpoints` names a store."""

    def __init__(self, settings: Settings, kind: str, directory: Path, metrics: CheckpointMetrics) -> None:
        """Raises SettingsError if `checkpoints` names no store."""
        self._interval, self._kept = settings.checkpoint_interval, settings.checkpoints_kept
        self._kind, self._metrics = kind, metrics
        self._catalogue = Catalogue(settings.checkpoints) if settings.checkpoints else None
        self._requests = CheckpointRequests(directory)
        self._is_first = True
        self._stop = threading.Event()
        self._running: asyncio.Task[None] | None = None
        self._due, self._pause = 0.0, FIRST_PAUSE

    @asynccontextmanager
    async def beside(self, instance: str) -> AsyncIterator[None]:
        """Make checkpoints while entered. `instance` is the random id of the state directory. Ends a running
        upload on exit."""
        if self._catalogue is None:
            yield
            return
        self._uploads = Uploads(self._catalogue, self._kind, instance, self._kept)
        self._metrics.checkpoint_interval.set(self._interval)
        self._metrics.checkpointed.set(time.time())
        try:
            yield
        finally:
            self._stop.set()
            if self._running is not None:
                await asyncio.wait([self._running])

    def request(self) -> str | None:
        """Return the request for a checkpoint that waits for an answer."""
        return self._requests.waiting()

    def begin_if_due(self, state: OpenState, request: str | None) -> None:
        """Begin a checkpoint if one is due, or for the request that waits. Raises the error of the last one,
        unless it was the store's."""
        if self._running is not None:
            if not self._running.done():
                return
            running, self._running = self._running, None
            running.result()
        if self._catalogue is None:
            if request is not None:
                self._answer(request, error="the role has no setting checkpoints")
        elif request is not None or time.monotonic() >= self._due:
            self._running = retrieved(asyncio.create_task(self._run(state, request)))

    async def _run(self, state: OpenState, request: str | None) -> None:
        """Make a checkpoint, answer the request, and decide when the next one is due."""
        self._due = time.monotonic() + self._interval
        try:
            with self._metrics.stage_seconds.labels("checkpoint").time():
                thread = ThreadPoolExecutor(1, "checkpoint")  # of its own: its priority stays low
                try:
                    making = thread.submit(self._make, state, request is not None)
                    newest = await asyncio.wrap_future(making)
                finally:
                    thread.shutdown(wait=False)
        except _StoppedError:
            return
        except (CheckpointError, SettingsError, OSError) as error:  # a provider's settings are read late
            self._due = time.monotonic() + self._pause
            log.warning("checkpoint_failed", error=str(error), retry_seconds=round(self._pause))
            self._pause = min(2 * self._pause, max(self._interval, FIRST_PAUSE))
            self._metrics.checkpoint_failures.inc()
            self._answer(request, error=str(error))
            return
        self._pause = FIRST_PAUSE
        self._answer(request, *(("nothing was applied yet",) if newest is None else (None, str(newest.name))))

    def _make(self, state: OpenState, requested: bool) -> Manifest | None:
        """Bring the newest checkpoint up to date, unless it is young enough, and return it. None if nothing
        was applied yet."""
        now, summary = time.time(), described(self._kind, state.meta)
        newest, is_first, self._is_first = self._uploads.newest(summary.journal), self._is_first, False
        if newest is not None:
            self._note(newest)
            age = now - newest.time / 1000
            if is_first and 0 <= age < self._interval and not requested:
                self._due = time.monotonic() + self._interval - age
                return newest
            if newest.progress == summary.progress:
                self._note(newest, now)
                self._uploads.prune(summary.journal)
                return newest
        began, throttle, uploaded = time.monotonic(), Throttle(sleep=self._stop.wait), 0

        def go_on() -> None:
            if self._stop.is_set():
                raise _StoppedError

        def turn(share: float) -> None:
            throttle.turn(share)
            go_on()

        def report(remaining: int, more: int) -> None:
            nonlocal uploaded
            uploaded += more
            self._metrics.checkpoint_uploading.set(remaining)
            self._metrics.checkpoint_uploaded.inc(more)

        try:
            with linked(state.store, self._kind) as moment:
                if moment is None:
                    return None
                yield_processors()  # not before: linking keeps the GIL
                manifest = self._uploads.upload(moment, turn, report, go_on)
        finally:
            self._metrics.checkpoint_uploading.set(0)
        self._note(manifest)
        log.info(
            "checkpoint",
            checkpoint=str(manifest.name),
            bytes=manifest.bytes,
            uploaded_bytes=uploaded,
            seconds=round(time.monotonic() - began, 1),
        )
        return manifest

    def _note(self, newest: Manifest, complete: float | None = None) -> None:
        """Report the newest checkpoint. It has all that was applied at its own time, or at `complete`, in
        seconds since the epoch."""
        self._metrics.checkpointed.set(newest.time / 1000 if complete is None else complete)
        self._metrics.checkpoint_bytes.set(newest.bytes)

    def _answer(self, request: str | None, error: str | None = None, checkpoint: str | None = None) -> None:
        if request is not None:
            with suppress(OutputError):
                self._requests.answer(CheckpointAnswer(request=request, checkpoint=checkpoint, error=error))
