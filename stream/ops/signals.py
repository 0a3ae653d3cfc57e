"""How a role is told to stop: the same way for all of them."""

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
    """An event that SIGTERM and SIGINT set, for as long as the context lasts.

    The first signal asks; its handler is gone then, so a second one ends the process at once, which is safe:
    roles are crash-only. Must be entered in the main thread, inside a running event loop.
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


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives, or None when told to stop before it is done."""
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
async def entered_unless_stopped(
    stop: asyncio.Event, context: AbstractAsyncContextManager[T]
) -> AsyncIterator[T | None]:
    """The context, or None when told to stop before it is entered: then it was left again."""
    async with AsyncExitStack() as stack:
        yield await unless_stopped(stop, stack.enter_async_context(context))


async def _stop_when_orphaned(stop: asyncio.Event) -> None:
    """A supervised role must not outlive its supervisor, whatever ended that."""
    supervisor = os.environ.get(SUPERVISOR)
    if supervisor is None:
        return
    while os.getppid() == int(supervisor):  # noqa: ASYNC110 (a parent's death is no event)
        await asyncio.sleep(ORPHAN_SECONDS)
    stop.set()
