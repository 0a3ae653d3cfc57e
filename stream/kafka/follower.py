"""A state that follows the decisions topic, for recovery, standby, rebuild and queries (rule 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from stream.checkpoints.kinds import JUDGE
from stream.errors import StateError
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.kafka.erasing import Erasing
from stream.kafka.in_flight import in_thread
from stream.kafka.opened_state import StateDirectory, open_at_position
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader, RecordReader
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
        self.erasing = Erasing(judge.state)
        """Erases what was forgotten, while `follow` is called."""
        self.on_iteration: Callable[[], None] = lambda: None
        """Called for every iteration, to report progress."""

    @property
    def state(self) -> State:
        """The state, with all applied decisions."""
        return self.judge.state

    @property
    def remaining(self) -> int:
        """Number of decision records to apply as of the last fetch, including transaction markers."""
        return max(0, (self.decisions.stable or 0) - self.decisions.position)

    async def follow(self) -> None:
        """Apply new decisions. Waits briefly if there are none."""
        self.on_iteration()
        if self.erasing.is_due:
            await self.erasing.attend()
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
            if (turn := decisions.turn) is not None:
                await in_thread(self.judge.apply_turn, decisions, turn, record.offset)
                continue
            if (forgotten := decisions.forgotten) is not None:
                await in_thread(
                    self.judge.apply_forgetting, decisions, forgotten, record.offset, record.timestamp
                )
                continue
            entries = await self.journal.read_up_to(decisions.end, self.on_iteration)
            await in_thread(self.judge.apply, entries, decisions, record.offset + 1)

    async def follow_to_end(self) -> None:
        """Apply all decisions that are in the log, as who leads must. Waits while leaders are unreachable, or
        an open transaction hides decisions."""
        await self._follow_to((await self.decisions.settled_bounds(self.on_iteration)).end)

    async def follow_to_stable(self) -> None:
        """Apply all decisions that no open transaction hides. Waits while leaders are unreachable."""
        answer = retry_until_answered(
            f"topic {self.decisions.topic}", self.decisions.bounds, self.on_iteration
        )
        await self._follow_to((await answer).stable)

    async def _follow_to(self, end: int) -> None:
        while self.decisions.position < end:
            await self.follow()


@asynccontextmanager
async def open_follower(
    settings: Settings, genesis: Genesis, directory: Path, *, restore: bool = False
) -> AsyncIterator[Follower]:
    """Open a judge's state directory with a follower, as `open_at_position` does. Without `restore`, an empty
    one is not restored from a checkpoint."""
    if not restore:
        settings = settings.model_copy(update={"checkpoints": None})

    def open_state(cluster_id: str) -> State:
        return State(
            directory,
            genesis,
            cluster_id,
            memory=settings.tables_memory,
            generation=settings.tables_generation,
            cache=settings.tables_cache,
        )

    opening = open_at_position(settings, genesis, StateDirectory(directory, JUDGE, open_state))
    async with opening as (state, journal, decisions):
        follower = Follower(Judge(state, genesis), journal, decisions, directory)
        try:
            yield follower
        finally:
            await follower.erasing.close()
