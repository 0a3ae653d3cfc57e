"""The tasks of a role, which ends when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Runs tasks until `end`; the first error of one is kept."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._over.is_set():
            self._error = error
            self._over.set()

    @property
    def over(self) -> bool:
        """Whether a task has failed, or `end` was called."""
        return self._over.is_set()

    async def failure(self) -> bool:
        """Return once a task has failed."""
        return await self._over.wait()

    def raise_failure(self) -> None:
        """Raise the first error of a task, if there was one."""
        if self._error is not None:
            raise self._error

    async def end(self) -> None:
        """Cancel what still runs, and wait for it; further errors are ignored."""
        self._over.set()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
