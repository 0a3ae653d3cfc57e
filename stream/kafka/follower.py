"""A state that follows the decisions topic, for recovery, standby, rebuild and queries (rule 8)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointName
from stream.errors import CheckpointError, DamagedStateError, StaleError, StateError, TrimmedLogError
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.kafka import broker_metadata, clients
from stream.kafka.damaged_state import move_away, move_if_damaged, open_state
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.positions_in_topics import Position, misfit
from stream.kafka.reader import JournalReader, RecordReader, TopicReader, journal_reader
from stream.kafka.restored_state import advice_on_trimmed, restore_if_empty
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.tables.store.failures import OUTDATED

log = structlog.get_logger(__name__)


class Follower:
    """A judge's state with readers at its position, which applies recorded decisions and never decides."""

    def __init__(
        self, judge: Judge, journal: JournalReader, decisions: RecordReader, directory: Path
    ) -> None:
        self.judge, self.journal, self.decisions = judge, journal, decisions
        self.directory = directory
        """Directory of the state."""
        self.on_iteration: Callable[[], None] = lambda: None
        """Called for every iteration, to report progress."""

    @property
    def state(self) -> State:
        """The state, with all applied decisions."""
        return self.judge.state

    @property
    def remaining(self) -> int:
        """Number of decision records to apply as of the last fetch, including transaction markers."""
        return max(0, (self.decisions.end or 0) - self.decisions.position)

    async def follow(self) -> None:
        """Apply new decisions. Waits briefly if there are none."""
        self.on_iteration()
        for record in await self.decisions.poll():
            decisions = decode_decisions(record.value, record.offset)
            if decisions.start < self.state.meta.applied:
                raise StateError(
                    f"state directory {self.directory}: topic {self.decisions.topic} offset "
                    f"{record.offset} decides the journal from {decisions.start} on, which was applied up to "
                    f"{self.state.meta.applied}: it was built from other decisions"
                )
            if (part := decisions.ledger) is not None:
                await in_thread(self.judge.apply_ledger, decisions, part, record.offset)
                continue
            entries = await self.journal.read_up_to(decisions.end, self.on_iteration)
            await in_thread(self.judge.apply, entries, decisions, record.offset + 1)

    async def follow_to_end(self) -> None:
        """Apply all decisions up to the current log end. Waits while leaders are unreachable."""
        _, end = await retry_until_answered(
            f"topic {self.decisions.topic}", self.decisions.bounds, self.on_iteration
        )
        while self.decisions.position < end:
            await self.follow()


@asynccontextmanager
async def open_follower(
    settings: Settings, genesis: Genesis, directory: Path, *, restore: bool = False
) -> AsyncIterator[Follower]:
    """Open a state directory with a follower. With `restore`, an empty one is restored from a checkpoint, if
    the setting `checkpoints` names a store.

    Raises StateError if the directory belongs to another Kafka cluster or journal, or is ahead of it (rule
    9), or if a log was trimmed beyond it; the error names the checkpoint that will do. Raises
    DamagedStateError if it is damaged. With `rebuild_damaged`, a damaged directory is moved aside, and one
    that logs do not reach any more if a checkpoint will do. If that is found on opening, a new state is
    opened; if it is found later, StaleError is raised after closing it.
    """
    if not restore:
        settings = settings.model_copy(update={"checkpoints": None})
    async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
        cluster_id = await retry_until_answered("a broker", lambda: broker_metadata.cluster_id(client))
    opening = _Opening(settings, genesis, cluster_id, directory)
    async with move_if_damaged(settings, directory), opening.move_if_outdated(), AsyncExitStack() as stack:
        yield await opening.open(stack)


class _Opening:
    """Opens a state directory, after restoring it if it is empty."""

    def __init__(self, settings: Settings, genesis: Genesis, cluster_id: str, directory: Path) -> None:
        self._settings, self._genesis, self._cluster_id = settings, genesis, cluster_id
        self._directory = directory

    async def open(self, stack: AsyncExitStack) -> Follower:
        """Open the directory at its position in the topics. Raises as `open_follower` does."""
        avoided: set[CheckpointName] = set()
        can_move = self._settings.rebuild_damaged
        while True:
            restored = await restore_if_empty(
                self._settings, self._genesis, self._cluster_id, JUDGE, self._directory, avoided
            )
            try:
                async with AsyncExitStack() as attempt:
                    follower = await self._open(attempt)
                    stack.push_async_exit(attempt.pop_all())
                    return follower
            except (DamagedStateError, TrimmedLogError) as error:
                if restored is not None:  # damaged when it was uploaded, or trimmed meanwhile
                    log.warning("checkpoint_refused", checkpoint=str(restored), reason=str(error))
                    avoided.add(restored)
                    if isinstance(error, DamagedStateError):
                        note_damage(self._directory, error)
                    await in_thread(shutil.rmtree, self._directory)
                elif not can_move:
                    raise
                elif isinstance(error, DamagedStateError):
                    can_move = False
                    note_damage(self._directory, error)
                    move_away(self._directory, error)
                else:
                    can_move = False
                    await self._move_outdated(error)

    async def _open(self, stack: AsyncExitStack) -> Follower:
        settings, genesis, enter = self._settings, self._genesis, stack.enter_async_context
        state = await enter(open_state(self._directory, genesis, self._cluster_id, settings))
        position = Position(state.meta.applied, state.meta.last, state.meta.decided)
        journal = await enter(journal_reader(settings, position.applied, genesis))
        decisions = await enter(
            TopicReader(settings, TopicNames(settings.namespace).decisions, position.decided)
        )
        if reason := await misfit(position, settings, genesis, journal, decisions):
            raise StateError(f"state directory {self._directory}: {reason}")
        return Follower(Judge(state, genesis), journal, decisions, self._directory)

    @asynccontextmanager
    async def move_if_outdated(self) -> AsyncIterator[None]:
        """Context manager that moves the directory aside if a log was trimmed beyond it, `rebuild_damaged` is
        set and a checkpoint will do. Raises StaleError in that case."""
        try:
            yield
        except TrimmedLogError as error:
            moved = await self._move_outdated(error)
            raise StaleError(
                f"state directory {self._directory}: {error}; moved to {moved}; the next start restores it"
            ) from error

    async def _move_outdated(self, error: TrimmedLogError) -> Path:
        """Move the directory aside if that is allowed and a checkpoint will do, or raise StateError."""
        settings, directory = self._settings, self._directory
        try:
            name, advice = await advice_on_trimmed(
                settings, self._genesis, self._cluster_id, JUDGE, directory
            )
        except CheckpointError as failed:
            message = f"state directory {directory}: {error}; which checkpoint will do is not known: {failed}"
            raise (CheckpointError if settings.rebuild_damaged else StateError)(message) from error
        if name is None or not settings.rebuild_damaged:
            raise StateError(f"state directory {directory}: {error}; {advice}") from error
        return move_away(directory, error, OUTDATED)
