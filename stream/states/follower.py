"""A state that follows the decisions topic, for recovery, standby, rebuild, queries and electors (rule 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from stream.checkpoints.kinds import JUDGE
from stream.errors import StateError
from stream.judge.batch import BATCH_BYTES, Decided
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.kafka.in_flight import in_thread
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader, TopicReader
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.states.directory import FollowingDirectory
from stream.states.erasing import Erasing
from stream.states.state import OpenState

BATCH_ROWS: Final = 16_384
"""Rows applied at once."""


class Follower:
    """A state with readers at its position, which applies recorded decisions and never decides."""

    def __init__(
        self,
        state: OpenState,
        apply: Callable[[Sequence[Decided]], object],
        journal: JournalReader,
        decisions: TopicReader,
    ) -> None:
        """`apply` applies consecutive decisions, in a thread."""
        self._state, self._apply = state, apply
        self.journal, self.decisions = journal, decisions
        self.on_iteration: Callable[[], None] = lambda: None
        """Called for every iteration, to report progress."""

    @property
    def remaining(self) -> int:
        """Number of decision records to apply as of the last fetch, including transaction markers."""
        return max(0, (self.decisions.stable or 0) - self.decisions.position)

    async def follow(self) -> None:
        """Apply new decisions. Waits briefly if there are none. Raises StateError if they do not go on where
        the state has come."""
        self.on_iteration()
        batch, rows, size, applied = list[Decided](), 0, 0, self._state.meta.applied
        for record in await self.decisions.poll():
            decisions = decode_decisions(record.value, record.offset)
            if decisions.start < applied:
                raise StateError(
                    f"state directory {self._state.store.path}: topic {self.decisions.topic} offset"
                    f" {record.offset} decides the journal from {decisions.start} on, which was applied up to"
                    f" {applied}: it was built from other decisions"
                )
            applied, entries = decisions.end, []
            if decisions.has_rows:
                entries = await self.journal.read_up_to(applied, self.on_iteration)
            batch.append(Decided(entries, decisions, record.offset + 1, record.timestamp))
            rows += len(decisions.codes)
            size += sum(entry.rows.nbytes for entry in entries)
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                await self._apply_all(batch)
                batch, rows, size = [], 0, 0
        if batch:
            await self._apply_all(batch)

    async def _apply_all(self, batch: list[Decided]) -> None:
        await in_thread(self._apply, batch)
        self.on_iteration()

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


class JudgeFollower(Follower):
    """A judge that applies what was decided, and meanwhile erases from its state what is to be erased."""

    def __init__(self, judge: Judge, journal: JournalReader, decisions: TopicReader) -> None:
        super().__init__(judge.state, judge.follow, journal, decisions)
        self.judge, self.state = judge, judge.state
        self.erasing = Erasing(judge.state, partial(in_thread, judge.state.blank))

    async def follow(self) -> None:
        """Do the next part of the erasing, and apply new decisions."""
        if self.erasing.is_due:
            await self.erasing.attend()
        await super().follow()


@asynccontextmanager
async def open_follower(
    settings: Settings, genesis: Genesis, path: Path, *, restore: bool = False
) -> AsyncIterator[JudgeFollower]:
    """Open the state of a judge with a follower, as `FollowingDirectory` does. Without `restore`, an empty
    one is not restored from a checkpoint."""
    if not restore:
        settings = settings.model_copy(update={"checkpoints": None})

    def open_state(cluster_id: str) -> State:
        return State(
            path,
            genesis,
            cluster_id,
            memory=settings.tables_memory,
            generation=settings.tables_generation,
            cache=settings.tables_cache,
        )

    directory = FollowingDirectory(settings, genesis, path, JUDGE, open_state)
    async with directory.opened() as state:
        follower = JudgeFollower(Judge(state, genesis), directory.journal, directory.decisions)
        try:
            yield follower
        finally:
            await follower.erasing.close()
