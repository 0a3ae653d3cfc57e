"""Commits of an assignment: offsets follow the journal, with the topic id and attempts as metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from stream.roles.worker.attempts import Positions
from stream.roles.worker.backlog import PagesTopic

COMMIT_SECONDS: Final = 0.1
"""Batching delay of a commit, which includes everything appended meanwhile."""

log = structlog.get_logger(__name__, role="worker")


class OffsetCommits:
    """Commits the positions of the partitions given to `add`, as they are at the time of the commit."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        source: PagesTopic,
        positions: Positions,
        stage: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._consumer, self._source, self._positions = consumer, source, positions
        self._stage = stage
        self._unsaved: set[int] = set()
        self._saving = asyncio.Lock()
        """Serialises commits, so that a retried commit does not overtake a later one."""
        self._due, self._ended = asyncio.Event(), asyncio.Event()

    def add(self, partitions: Iterable[int]) -> None:
        """Have `follow` commit the positions of these partitions."""
        self._unsaved.update(partitions)
        self._due.set()

    def end(self) -> None:
        """Let `follow` return once everything is committed, since nothing more will be added."""
        self._ended.set()
        self._due.set()

    async def follow(self) -> None:
        """Commit added positions, concurrently with the next append. No timing depends on it."""
        while not self._ended.is_set() or self._unsaved:
            await self._due.wait()
            self._due.clear()
            unsaved, self._unsaved = self._unsaved, set()
            if unsaved:
                with self._stage("commit"):
                    await self.save(unsaved)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), COMMIT_SECONDS)

    async def save(self, partitions: set[int]) -> bool:
        """Commit the current positions of these partitions. Returns whether that succeeded."""
        async with self._saving:
            commits = self._positions.commits(partitions, self._source.topic_id)
            topic = self._source.topic
            try:
                await self._consumer.commit(
                    {TopicPartition(topic, partition): each for partition, each in commits.items()}
                )
            except (CommitFailedError, IllegalStateError) as error:
                # The partitions were reassigned. Another worker reads and appends these pages again, and the
                # judge drops those that it has judged (rule 7).
                log.warning("commit_refused", commits=commits, error=str(error))
                return False
        return True

    async def hand_over(self) -> None:
        """Commit that no attempt failed during this assignment. Everything must be appended."""
        if changed := self._positions.hand_over():
            await self.save(changed)
