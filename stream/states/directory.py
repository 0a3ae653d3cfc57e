"""Opens a state directory, and moves one aside that is damaged or that the logs do not reach any more.

A directory is restored before, if it is empty and a checkpoint fits, and set aside only if the setting
`rebuild_damaged` allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import structlog

from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointName
from stream.errors import (
    CheckpointError,
    DamagedStateError,
    NeardupError,
    StaleError,
    StateError,
    TrimmedLogError,
)
from stream.futures import retrieved
from stream.kafka import broker_metadata, clients
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader, TopicReader, journal_reader
from stream.messages.journal import Genesis
from stream.scratch import ScratchDirectory
from stream.settings import Settings
from stream.states.position import bounds_of_logs, misfit
from stream.states.restored import FittingCheckpoints
from stream.states.scrubs import refuse_known_damage
from stream.states.state import OpenState
from stream.tables.store.failures import DAMAGED, OUTDATED, set_aside

log = structlog.get_logger(__name__)


S = TypeVar("S", bound=OpenState)


class StateDirectory(Generic[S]):
    """A state directory, of which `opened` is the life in a process."""

    unfit: ClassVar[tuple[type[StateError], ...]] = (DamagedStateError,)
    """Errors that say that this state will not do."""

    def __init__(self, settings: Settings, path: Path, open_it: Callable[[], S]) -> None:
        """`open_it` opens the state, in a thread."""
        self._settings, self.path, self._open_it = settings, path, open_it

    async def _restore(self, avoided: set[CheckpointName]) -> CheckpointName | None:
        """Restore an empty directory, and return from what, if it was."""
        return None

    async def _set_aside(self, error: StateError) -> Path:
        """Rename the directory, and return its new path, if that is allowed; else raise the error."""
        if isinstance(error, DamagedStateError):
            note_damage(self.path, error)
        if not self._settings.rebuild_damaged:
            raise error
        return _move_away(self.path, error, DAMAGED)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[S]:
        """Context manager that opens the state, and closes it.

        A directory that is damaged, or outdated, is set aside if that is allowed, else its error is raised.
        If it is found on opening, a new state is opened; later, StaleError is raised after closing it.
        """
        state, closing = await self._open()
        try:
            async with closing:
                yield state
        except self.unfit as error:
            moved = await self._set_aside(error)
            next_start = "rebuilds" if isinstance(error, DamagedStateError) else "restores"
            raise StaleError(
                f"state directory {self.path}: moved to {moved}; the next start {next_start} it: {error}"
            ) from error

    async def _open(self) -> tuple[S, AsyncExitStack]:
        avoided, was_moved = set[CheckpointName](), False
        while True:
            restored = await self._restore(avoided)
            try:
                async with AsyncExitStack() as stack:
                    return await self._enter(stack), stack.pop_all()
            except self.unfit as error:
                if restored is not None:  # damaged when it was uploaded, or trimmed meanwhile
                    log.warning("checkpoint_refused", checkpoint=str(restored), reason=str(error))
                    avoided.add(restored)
                    if isinstance(error, DamagedStateError):
                        note_damage(self.path, error)
                    await in_thread(_remove, self.path)
                elif was_moved:
                    raise
                else:
                    await self._set_aside(error)
                    was_moved = True

    async def _enter(self, stack: AsyncExitStack) -> S:
        return await stack.enter_async_context(_opened_in_thread(self.path, self._open_it))


class FollowingDirectory(StateDirectory[S]):
    """The directory of a state that follows journal and decisions, with readers at its position while it is
    open.

    Opening it raises StateError if it belongs to another Kafka cluster or journal, or is ahead of it (rule
    9), or if a log was trimmed beyond it; the error names the checkpoint that will do. One that logs do not
    reach any more is set aside only if a checkpoint will do.
    """

    unfit = (DamagedStateError, TrimmedLogError)

    def __init__(
        self, settings: Settings, genesis: Genesis, path: Path, kind: str, open_it: Callable[[str], S]
    ) -> None:
        """`kind` is that of the checkpoints from which it is restored if the setting `checkpoints` names a
        store; `open_it` opens the state, given the Kafka cluster's id."""
        super().__init__(settings, path, lambda: open_it(self._cluster_id))
        self._genesis, self._kind = genesis, kind
        self.journal: JournalReader
        self.decisions: TopicReader

    async def _open(self) -> tuple[S, AsyncExitStack]:
        async with clients.open_client(
            self._settings, clients.client(self._settings), patiently=True
        ) as client:
            self._cluster_id = await retry_until_answered(
                "a broker", lambda: broker_metadata.cluster_id(client)
            )
        return await super()._open()

    @property
    def _checkpoints(self) -> FittingCheckpoints:
        return FittingCheckpoints(self._settings, self._genesis, self._cluster_id, self._kind, self.path)

    async def _restore(self, avoided: set[CheckpointName]) -> CheckpointName | None:
        return await self._checkpoints.restore_if_empty(self.path, avoided)

    async def _enter(self, stack: AsyncExitStack) -> S:
        settings, genesis, enter = self._settings, self._genesis, stack.enter_async_context
        state = await super()._enter(stack)
        error = await misfit(state.meta, await bounds_of_logs(settings), settings, genesis)
        if isinstance(error, TrimmedLogError):
            raise error
        if error is not None:
            raise StateError(f"state directory {self.path}: {error}") from error
        self.journal = await enter(journal_reader(settings, state.meta.applied, genesis))
        decisions = TopicNames(settings.namespace).decisions
        self.decisions = await enter(TopicReader(settings, decisions, state.meta.decided))
        return state

    async def _set_aside(self, error: StateError) -> Path:
        if not isinstance(error, TrimmedLogError):
            return await super()._set_aside(error)
        what, can_move = f"state directory {self.path}: {error}", self._settings.rebuild_damaged
        try:
            manifest, advice = await self._checkpoints.advice()
        except CheckpointError as failed:
            message = f"{what}; which checkpoint will do is not known: {failed}"
            raise (CheckpointError if can_move else StateError)(message) from error
        if manifest is None or not can_move:
            raise StateError(f"{what}; {advice}") from error
        return _move_away(self.path, error, OUTDATED)


@asynccontextmanager
async def _opened_in_thread(directory: Path, open_it: Callable[[], S]) -> AsyncIterator[S]:
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


def _move_away(directory: Path, error: StateError, why: str) -> Path:
    """Rename a state directory that is damaged or outdated, and return its new path."""
    moved = set_aside(directory, why)
    log.error(f"state_{why}", error=str(error), moved_to=str(moved))
    return moved


def _remove(directory: Path) -> None:
    """Remove a directory that was restored and refused; after a kill, the next process does."""
    with ScratchDirectory("refused", directory.parent) as scratch:
        directory.rename(Path(scratch, directory.name))
