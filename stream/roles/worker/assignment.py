"""One assignment of partitions to a worker, with everything that was read during it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiokafka import TopicPartition

from stream.roles.worker.attempts import Positions
from stream.roles.worker.backlog import Backlog, JournalBatch
from stream.roles.worker.offset_commits import OffsetCommits

APPEND_BATCHING_SECONDS: Final = 0.015
"""How long an append waits to be batched while children are at work (rule 3)."""
BUSY_APPEND_BATCHING_SECONDS: Final = 0.25
"""Batching delay while more than a chunk is queued for children. Pages then wait for seconds anyway, and each
append leads to a transaction of the judge. At 0.1 s, all roles together took a quarter more CPU time."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicIdCheck:
    """A check of the topic id at the leaders, which covers all pages fetched before it."""

    ends: Mapping[int, int]
    """By partition, the offset after the last page that it covers."""
    answer: asyncio.Task[None]

    def covers(self, batch: JournalBatch) -> bool:
        """Whether it covers all pages of the batch."""
        return all(end <= self.ends.get(partition, -1) for partition, end in batch.ends.items())


class Assignment:
    """A set of assigned partitions. It is open from when their start positions are known until `end`."""

    backlog: Backlog
    positions: Positions
    commits: OffsetCommits
    """Set by `open`, like the two above."""

    def __init__(self, topic: str, partitions: frozenset[int]) -> None:
        self.partitions = partitions
        self.keys = [TopicPartition(topic, partition) for partition in partitions]
        self.is_open = False
        self.reading: asyncio.Task[None] | None = None
        self.writing: asyncio.Task[None] | None = None
        self.feeding: list[asyncio.Task[None]] = []
        self.topic_id_check: TopicIdCheck | None = None
        """The last check that was started before its batch was complete."""
        self.alone = False
        """Whether the next row is of a page that was tried alone, so that waiting for more rows is
        pointless."""
        self.appended = asyncio.Event()
        """Set when pages were appended to the journal."""
        self._news = asyncio.Event()
        """Set when there may be rows to append."""
        self._idle = asyncio.Event()
        """Set while all pages have rows."""
        self._idle.set()
        self._ending = False

    def open(self, backlog: Backlog, positions: Positions, commits: OffsetCommits) -> None:
        """Accept pages."""
        self.backlog, self.positions, self.commits = backlog, positions, commits
        self.is_open = True
        self._news.set()  # there may be losses to declare

    def end(self) -> None:
        """Stop the assignment: only finished pages are still appended."""
        if self.is_open:
            self.backlog.keep_finished()
        self._ending = True
        self._idle.set()
        self._news.set()

    def note_pages(self) -> None:
        """Note that pages were read."""
        self._idle.clear()

    def note_rows(self) -> None:
        """Note that pages got rows."""
        self._news.set()
        if not self.backlog.unanswered:
            self._idle.set()

    def note_append(self, batch: JournalBatch) -> None:
        """Record that a batch is in the journal, so that its offsets are committed."""
        self.backlog.release(batch)
        self.positions.advance(batch.ranges)
        self.commits.add(batch.ends)
        self.appended.set()

    @property
    def may_check_topic_id(self) -> bool:
        """Whether no check is in flight."""
        return self.topic_id_check is None or self.topic_id_check.answer.done()

    def check_topic_id(self, ends: Mapping[int, int], answer: asyncio.Task[None]) -> None:
        """Record a check in flight that covers pages up to these ends."""
        before = self.topic_id_check.ends if self.topic_id_check else {}
        self.topic_id_check = TopicIdCheck({**before, **ends}, answer)

    async def finished(self, *, full: bool) -> JournalBatch | None:
        """The next batch to append; None when the assignment is over.

        Unless the last one was `full`, rows wait to be batched while children are at work: an append costs
        worker and broker as much as a page, and under load throughput counts rather than latency.
        """
        while True:
            await self._news.wait()
            self._news.clear()
            if not (full or self.alone or self._idle.is_set()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._idle.wait(),
                        BUSY_APPEND_BATCHING_SECONDS if self.backlog.behind else APPEND_BATCHING_SECONDS,
                    )
            batch = self.backlog.take()
            if batch or self._ending:
                self._news.set()  # there may be more
                return batch
