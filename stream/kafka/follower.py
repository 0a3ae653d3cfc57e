"""A state that follows the decisions topic, for recovery, standby, rebuild and queries (rule 8)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointName
from stream.errors import DamagedStateError, StateError
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.kafka import broker_metadata, clients
from stream.kafka.damaged_state import move_away, move_if_damaged, open_state
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.positions_in_topics import Position, misfit
from stream.kafka.reader import JournalReader, RecordReader, TopicReader, journal_reader
from stream.kafka.restored_state import restore_if_empty
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.settings import Settings

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
    9), and DamagedStateError if it is damaged. With `rebuild_damaged`, a damaged directory is moved aside. If
    the damage is found on opening, a new state is opened; if it is found later, StaleError is raised after
    closing it.
    """
    names = TopicNames(settings.namespace)
    if not restore:
        settings = settings.model_copy(update={"checkpoints": None})
    async with move_if_damaged(settings, directory), AsyncExitStack() as stack:
        async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
            cluster_id = await retry_until_answered("a broker", lambda: broker_metadata.cluster_id(client))
        state = await _open_state(stack, settings, genesis, cluster_id, directory)
        journal = await stack.enter_async_context(journal_reader(settings, state.meta.applied, genesis))
        decisions = await stack.enter_async_context(
            TopicReader(settings, names.decisions, state.meta.decided)
        )
        position = Position(state.meta.applied, state.meta.last, state.meta.decided)
        if reason := await misfit(position, settings, genesis, journal, decisions):
            raise StateError(f"state directory {directory}: {reason}")
        yield Follower(Judge(state, genesis), journal, decisions, directory)


async def _open_state(
    stack: AsyncExitStack, settings: Settings, genesis: Genesis, cluster_id: str, directory: Path
) -> State:
    """Open a state directory, after restoring it if it is empty."""
    avoided: set[CheckpointName] = set()
    can_move = settings.rebuild_damaged
    while True:
        restored = await restore_if_empty(settings, genesis, cluster_id, directory, avoided)
        try:
            return await stack.enter_async_context(open_state(directory, genesis, cluster_id, settings))
        except DamagedStateError as error:
            if restored is not None:  # it was damaged when it was uploaded
                log.warning("checkpoint_refused", checkpoint=str(restored), reason=str(error))
                avoided.add(restored)
                await in_thread(shutil.rmtree, directory)
            elif can_move:
                can_move = False
                note_damage(directory, error)
                move_away(directory, error)
            else:
                raise
