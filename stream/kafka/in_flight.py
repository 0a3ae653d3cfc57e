"""Concurrent work with a bounded lifetime: at most one transaction in flight, and calls in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from stream.futures import retrieved

T = TypeVar("T")


class TransactionInFlight:
    """The transaction in flight while the next batch is decided. It does not outlive the context."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_in_flight(self) -> bool:
        """Whether a transaction was begun and is not awaited yet."""
        return self._task is not None

    def begin(self, publishing: Coroutine[Any, Any, None]) -> None:
        """Begin a transaction. The previous one must have been awaited."""
        self._task = asyncio.create_task(publishing)

    async def finish(self) -> None:
        """Wait for the transaction in flight, if any, and raise its error."""
        if self._task is not None:
            await self._task
            self._task = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class _StoppedError(Exception):
    """The call was cancelled."""


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call the function in a thread. Waits for the thread to end even on cancellation."""
    return await in_stoppable_thread(lambda _: function(*arguments))


async def in_stoppable_thread(function: Callable[[Callable[[], None]], T]) -> T:
    """Call the function in a thread, as `in_thread` does. It is given a function to call often, which raises
    after a cancellation, so that the thread ends soon."""
    stopped = threading.Event()

    def stop_if_cancelled() -> None:
        if stopped.is_set():
            raise _StoppedError

    running = retrieved(asyncio.ensure_future(asyncio.to_thread(function, stop_if_cancelled)))
    try:
        return await asyncio.shield(running)
    finally:
        stopped.set()
        await asyncio.wait([running])
