"""Stop requests to a role: by signal, or by the death of its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from stream.settings import SUPERVISOR

ORPHAN_SECONDS: Final = 0.5
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
T = TypeVar("T")


@contextmanager
def stop_event_on_signals(stop: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
    """Context manager that yields an event, which SIGTERM and SIGINT set.

    The first signal removes the handlers, so a second one ends the process at once. That is safe, because
    roles are crash-only. Enter it in the main thread, inside a running event loop.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        release()

    def release() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, ask)
    orphaned = asyncio.create_task(_stop_when_orphaned(stop))
    try:
        yield stop
    finally:
        release()
        orphaned.cancel()


async def run_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work` and return its result, or cancel it and return None as soon as `stop` is set."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


@asynccontextmanager
async def enter_unless_stopped(
    stop: asyncio.Event, context: AbstractAsyncContextManager[T]
) -> AsyncIterator[T | None]:
    """Enter `context` and yield its value, or cancel the entry and yield None as soon as `stop` is set."""
    async with AsyncExitStack() as stack:
        yield await run_unless_stopped(stop, stack.enter_async_context(context))


async def _stop_when_orphaned(stop: asyncio.Event) -> None:
    """Set `stop` when the supervisor dies, so that a supervised role does not outlive it."""
    supervisor = os.environ.get(SUPERVISOR)
    if supervisor is None:
        return
    while os.getppid() == int(supervisor):  # noqa: ASYNC110 (a parent's death cannot be awaited)
        await asyncio.sleep(ORPHAN_SECONDS)
    stop.set()
