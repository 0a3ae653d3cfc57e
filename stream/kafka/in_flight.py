"""What goes on beside the event loop: at most one transaction of a judge, and threads that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Transaction:
    """The transaction that may be under way while the next batch is decided; none outlives the context."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether nobody has heard yet how it ended."""
        return self._task is not None

    def begin(self, publishing: Coroutine[Any, Any, None]) -> None:
        """Begin; the one before must have ended."""
        self._task = asyncio.create_task(publishing)

    async def ended(self) -> None:
        """Wait for its end, if one is under way. Raises what it raised."""
        if self._task is not None:
            await self._task
            self._task = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """What the function gives, called in a thread. Neither an error nor a cancellation leaves the thread."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])
