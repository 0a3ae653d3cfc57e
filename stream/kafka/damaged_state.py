"""Opens a role's state directory, and moves a damaged one aside (setting `rebuild_damaged`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from stream.checkpoints.known_damage import note_damage
from stream.errors import DamagedStateError, NeardupError, StaleError, StateError
from stream.futures import retrieved
from stream.settings import Settings
from stream.tables.store.failures import DAMAGED, set_aside
from stream.tables.store.last_scrub import refuse_known_damage

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """A state in a directory."""

    def close(self) -> None:
        """Release the directory."""


S = TypeVar("S", bound=Closable)


@asynccontextmanager
async def open_in_thread(directory: Path, open_it: Callable[[], S]) -> AsyncIterator[S]:
    """Context manager that opens and closes the state in a directory in threads. The state is closed even if
    the opening was cancelled. Raises DamagedStateError if the directory is known to be damaged.

    An error within the context takes precedence over an error on closing.
    """

    def open_sound() -> S:
        refuse_known_damage(directory)
        return open_it()

    opening = retrieved(asyncio.create_task(asyncio.to_thread(open_sound)))
    try:
        yield await asyncio.shield(opening)
    except BaseException:
        with suppress(NeardupError):
            await _close(opening)
        raise
    await _close(opening)


async def _close(opening: asyncio.Task[S]) -> None:
    await asyncio.wait([opening])
    if opening.exception() is None:
        await asyncio.to_thread(opening.result().close)


@asynccontextmanager
async def move_if_damaged(settings: Settings, directory: Path) -> AsyncIterator[None]:
    """Context manager that moves a state directory aside if DamagedStateError is raised within it and
    `rebuild_damaged` is set. Raises StaleError in that case."""
    try:
        yield
    except DamagedStateError as error:
        note_damage(directory, error)
        if not settings.rebuild_damaged:
            raise
        moved = move_away(directory, error)
        raise StaleError(
            f"state directory {directory}: damaged and moved to {moved}; the next start rebuilds it"
        ) from error


def move_away(directory: Path, error: StateError, why: str = DAMAGED) -> Path:
    """Rename a state directory that is damaged, or `why` else, and return its new path."""
    moved = set_aside(directory, why)
    log.error(f"state_{why}", error=str(error), moved_to=str(moved))
    return moved
