"""Opens a role's state directory at its position in journal and decisions.

What a directory needs first is done here: an empty one is restored from a checkpoint, and a damaged or
outdated one is moved aside if the setting `rebuild_damaged` allows it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog

from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointName
from stream.errors import CheckpointError, DamagedStateError, StaleError, StateError, TrimmedLogError
from stream.kafka import broker_metadata, clients
from stream.kafka.damaged_state import Closable, move_away, move_if_damaged, open_in_thread
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.positions_in_topics import Position, misfit
from stream.kafka.reader import JournalReader, TopicReader, journal_reader
from stream.kafka.restored_state import advice_on_trimmed, restore_if_empty
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.tables.store.failures import OUTDATED

log = structlog.get_logger(__name__)


class _Meta(Protocol):
    @property
    def applied(self) -> int: ...
    @property
    def last(self) -> bytes: ...
    @property
    def decided(self) -> int: ...


class Positioned(Closable, Protocol):
    """A state in a directory that says how far it has come."""

    @property
    def meta(self) -> _Meta:
        """Its metadata."""


S = TypeVar("S", bound=Positioned)


class OpenedState(NamedTuple, Generic[S]):
    """An open state with readers at its position."""

    state: S
    journal: JournalReader
    decisions: TopicReader


class StateDirectory(NamedTuple, Generic[S]):
    """A state directory, and how its state is opened."""

    path: Path
    kind: str
    """The kind of checkpoints that it is restored from."""
    open: Callable[[str], S]
    """Opens the state, given the Kafka cluster's id."""


@asynccontextmanager
async def open_at_position(
    settings: Settings, genesis: Genesis, directory: StateDirectory[S]
) -> AsyncIterator[OpenedState[S]]:
    """Open the state in a directory, after restoring an empty one if the setting `checkpoints` names a store.

    Raises StateError if the directory belongs to another Kafka cluster or journal, or is ahead of it (rule
    9), or if a log was trimmed beyond it; the error names the checkpoint that will do. Raises
    DamagedStateError if it is damaged. With `rebuild_damaged`, a damaged directory is moved aside, and one
    that logs do not reach any more if a checkpoint will do. If that is found on opening, a new state is
    opened; if it is found later, StaleError is raised after closing it.
    """
    async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
        cluster_id = await retry_until_answered("a broker", lambda: broker_metadata.cluster_id(client))
    opening = _Opening(settings, genesis, cluster_id, directory)
    async with (
        move_if_damaged(settings, directory.path),
        opening.move_if_outdated(),
        AsyncExitStack() as stack,
    ):
        yield await opening.open(stack)


class _Opening(Generic[S]):
    """Opens a state directory, after restoring it if it is empty."""

    def __init__(
        self, settings: Settings, genesis: Genesis, cluster_id: str, directory: StateDirectory[S]
    ) -> None:
        self._settings, self._genesis, self._cluster_id = settings, genesis, cluster_id
        self._path, self._kind, self._open_it = directory

    async def open(self, stack: AsyncExitStack) -> OpenedState[S]:
        """Open the directory at its position in the topics. Raises as `open_at_position` does."""
        avoided: set[CheckpointName] = set()
        can_move = self._settings.rebuild_damaged
        while True:
            restored = await restore_if_empty(
                self._settings, self._genesis, self._cluster_id, self._kind, self._path, avoided
            )
            try:
                async with AsyncExitStack() as attempt:
                    opened = await self._open(attempt)
                    stack.push_async_exit(attempt.pop_all())
                    return opened
            except (DamagedStateError, TrimmedLogError) as error:
                if restored is not None:  # damaged when it was uploaded, or trimmed meanwhile
                    log.warning("checkpoint_refused", checkpoint=str(restored), reason=str(error))
                    avoided.add(restored)
                    if isinstance(error, DamagedStateError):
                        note_damage(self._path, error)
                    await in_thread(shutil.rmtree, self._path)
                elif not can_move:
                    raise
                elif isinstance(error, DamagedStateError):
                    can_move = False
                    note_damage(self._path, error)
                    move_away(self._path, error)
                else:
                    can_move = False
                    await self._move_outdated(error)

    async def _open(self, stack: AsyncExitStack) -> OpenedState[S]:
        settings, genesis, enter = self._settings, self._genesis, stack.enter_async_context
        state = await enter(open_in_thread(self._path, lambda: self._open_it(self._cluster_id)))
        position = Position(state.meta.applied, state.meta.last, state.meta.decided)
        journal = await enter(journal_reader(settings, position.applied, genesis))
        decisions = await enter(
            TopicReader(settings, TopicNames(settings.namespace).decisions, position.decided)
        )
        if reason := await misfit(position, settings, genesis, journal, decisions):
            raise StateError(f"state directory {self._path}: {reason}")
        return OpenedState(state, journal, decisions)

    @asynccontextmanager
    async def move_if_outdated(self) -> AsyncIterator[None]:
        """Context manager that moves the directory aside if a log was trimmed beyond it, `rebuild_damaged` is
        set and a checkpoint will do. Raises StaleError in that case."""
        try:
            yield
        except TrimmedLogError as error:
            moved = await self._move_outdated(error)
            raise StaleError(
                f"state directory {self._path}: {error}; moved to {moved}; the next start restores it"
            ) from error

    async def _move_outdated(self, error: TrimmedLogError) -> Path:
        """Move the directory aside if that is allowed and a checkpoint will do, or raise StateError."""
        settings, path = self._settings, self._path
        try:
            name, advice = await advice_on_trimmed(
                settings, self._genesis, self._cluster_id, self._kind, path
            )
        except CheckpointError as failed:
            message = f"state directory {path}: {error}; which checkpoint will do is not known: {failed}"
            raise (CheckpointError if settings.rebuild_damaged else StateError)(message) from error
        if name is None or not settings.rebuild_damaged:
            raise StateError(f"state directory {path}: {error}; {advice}") from error
        return move_away(path, error, OUTDATED)
