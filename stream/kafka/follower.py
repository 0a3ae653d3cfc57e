"""A state that follows what was decided: recovery, standby, rebuild and queries are all this (rule 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from stream.errors import StateError
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.kafka import cluster
from stream.kafka.names import Names
from stream.kafka.reader import JournalReader, TopicReader
from stream.kafka.transaction import in_thread
from stream.messages.decision import decode_decisions
from stream.messages.journal import Genesis
from stream.settings import Settings


class Follower:
    """An open state directory and readers that stand where it stands. Nothing here decides.

    Entering raises StateError when the directory is of another cluster, journal or future (rule 9).
    """

    def __init__(self, settings: Settings, genesis: Genesis, directory: Path) -> None:
        self._settings, self._genesis, self._directory = settings, genesis, directory
        self._names = Names(settings.namespace)
        self._stack = AsyncExitStack()
        self.turned: Callable[[], None] = lambda: None
        """Called whenever the follower looks for more."""

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._stack.aclose()

    async def _enter(self) -> None:
        settings = self._settings
        async with cluster.connect(settings) as client:
            cluster_id = await cluster.cluster_id(client)
        state = await asyncio.to_thread(
            lambda: State(
                self._directory,
                self._genesis,
                cluster_id,
                memory=settings.tables_memory,
                generation=settings.tables_generation,
                cache=settings.tables_cache,
            )
        )
        self._stack.push_async_callback(asyncio.to_thread, state.close)
        self.judge = Judge(state, self._genesis)
        self.journal = await self._stack.enter_async_context(
            JournalReader(settings, self._names.journal, state.meta.applied, self._genesis)
        )
        self._decisions = await self._stack.enter_async_context(
            TopicReader(settings, self._names.decisions, state.meta.decided)
        )
        await self._refuse_foreign_state()

    @property
    def state(self) -> State:
        """What has been applied."""
        return self.judge.state

    @property
    def remaining(self) -> int:
        """Decision records to apply, as far as the last fetch saw; transaction markers count."""
        return max(0, (self._decisions.end or 0) - self._decisions.position)

    async def reach(self) -> None:
        """Ask the cluster for anything. Raises BrokerError when it does not answer for long."""
        await cluster.cluster_id(self._decisions.client)

    async def follow(self) -> None:
        """Apply what was decided since the last look; waits a moment when there is nothing."""
        self.turned()
        for record in await self._decisions.poll():
            decisions = decode_decisions(record.value, record.offset)
            if decisions.start < self.state.meta.applied:
                raise StateError(
                    f"state directory {self._directory}: topic {self._names.decisions} offset "
                    f"{record.offset} decides the journal from {decisions.start} on, which was applied up to "
                    f"{self.state.meta.applied}: made from other decisions"
                )
            entries = await self.journal.up_to(decisions.end)
            await in_thread(self.judge.apply, entries, decisions, record.offset + 1)

    async def follow_to_end(self, stop: asyncio.Event | None = None) -> None:
        """Apply everything decided so far, unless told to stop meanwhile.

        The end is the log's, markers and all, so none is missed.
        """
        _, end = await self._decisions.bounds()
        while self._decisions.position < end and not (stop and stop.is_set()):
            await self.follow()

    async def _refuse_foreign_state(self) -> None:
        """The state must be a past of this journal and of these decisions."""
        meta, path = self.state.meta, self._directory
        first, end = await self._decisions.bounds()
        if meta.decided > end:
            raise StateError(
                f"state directory {path}: has applied decisions up to {meta.decided}, but {end} is their end"
            )
        if meta.decided < first:
            raise StateError(
                f"state directory {path}: wants decisions from {meta.decided}, kept are those from {first}"
            )
        if not meta.last:
            return
        _, end = await self.journal.bounds()
        if meta.applied > end:
            raise StateError(
                f"state directory {path}: has applied topic {self._names.journal} up to {meta.applied}, "
                f"but {end} is its end"
            )
        async with JournalReader(
            self._settings, self._names.journal, meta.applied - 1, self._genesis
        ) as reader:
            entries = await reader.up_to(meta.applied)
        if entries[-1].digest != meta.last:
            raise StateError(
                f"state directory {path}: made from another journal, its record {meta.applied - 1} differs"
            )
