"""A state that follows the decisions topic, for recovery, standby, rebuild and queries (rule 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from stream.errors import StateError
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.kafka import broker_metadata, clients
from stream.kafka.damaged_state import move_if_damaged, open_state
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader, RecordReader, TopicReader, journal_reader
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.settings import Settings


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
async def open_follower(settings: Settings, genesis: Genesis, directory: Path) -> AsyncIterator[Follower]:
    """Open a state directory with a follower.

    Raises StateError if the directory belongs to another Kafka cluster or journal, or is ahead of it (rule
    9), and DamagedStateError if it is damaged. With `rebuild_damaged`, a damaged directory is moved aside. If
    the damage is found on opening, a new state is opened; if it is found later, StaleError is raised after
    closing it.
    """
    names = TopicNames(settings.namespace)
    async with move_if_damaged(settings, directory), AsyncExitStack() as stack:
        async with clients.open_client(settings, clients.client(settings), patiently=True) as client:
            cluster_id = await retry_until_answered("a broker", lambda: broker_metadata.cluster_id(client))
        state = await stack.enter_async_context(open_state(directory, genesis, cluster_id, settings))
        journal = await stack.enter_async_context(journal_reader(settings, state.meta.applied, genesis))
        decisions = await stack.enter_async_context(
            TopicReader(settings, names.decisions, state.meta.decided)
        )
        follower = Follower(Judge(state, genesis), journal, decisions, directory)
        await _refuse_foreign_state(follower, settings, genesis)
        yield follower


async def _refuse_foreign_state(follower: Follower, settings: Settings, genesis: Genesis) -> None:
    """Raise StateError unless the state was built from this journal and these decisions."""
    meta, path, names = follower.state.meta, follower.directory, TopicNames(settings.namespace)
    first, end = await retry_until_answered(f"topic {names.decisions}", follower.decisions.bounds)
    if meta.decided > end:
        raise StateError(
            f"state directory {path}: has applied decisions up to {meta.decided}, but they end at {end}"
        )
    if meta.decided < first:
        raise StateError(
            f"state directory {path}: needs decisions from {meta.decided}, but they start at {first}"
        )
    if not meta.last:
        return
    _, end = await retry_until_answered(f"topic {names.journal}", follower.journal.bounds)
    if meta.applied > end:
        raise StateError(
            f"state directory {path}: has applied topic {names.journal} up to {meta.applied}, "
            f"but it ends at {end}"
        )
    async with journal_reader(settings, meta.applied - 1, genesis) as reader:
        entries = await reader.read_up_to(meta.applied)
    if entries[-1].digest != meta.last:
        raise StateError(
            f"state directory {path}: built from another journal, whose record {meta.applied - 1} differs"
        )
