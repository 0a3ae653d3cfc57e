"""A worker's group membership: rebalances start and end assignments, with an orderly handover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition

from stream.roles.worker.assignment import Assignment
from stream.roles.worker.tasks import Tasks
from stream.roles.worker.watch import WorkerStats, WorkerWatch

log = structlog.get_logger(__name__, role="worker")


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Begins and ends assignments, in callbacks of the consumer's coordinator.

    The coordinator awaits the callbacks in its own task and only logs their exceptions, so nothing that may
    fail is done in them.
    """

    def __init__(
        self,
        begin: Callable[[frozenset[int], float], Assignment],
        stop: asyncio.Event,
        tasks: Tasks,
        stats: WorkerStats,
        watch: WorkerWatch,
        shutdown_seconds: float,
    ) -> None:
        """`begin` starts an assignment of partitions, which pauses for some seconds before it reads."""
        self.current: Assignment | None = None
        """The current assignment."""
        self._assigned: frozenset[int] | None = None
        self._releasing = asyncio.Lock()
        self._begin, self._stop, self._tasks = begin, stop, tasks
        self._stats, self._watch, self._shutdown_seconds = stats, watch, shutdown_seconds

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start to read. Errors of the reader's task end the worker."""
        if self._stop.is_set() or self._tasks.over:
            return
        self._watch.metrics.rebalances.inc()
        self._assigned = frozenset(key.partition for key in assigned)
        self.current = self._begin(self._assigned, 0.0)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Hand over in order, while the group waits for at most `rebalance_timeout_ms`."""
        self._assigned = None
        await self.release()

    async def begin_again(self, assignment: Assignment, rest: float) -> None:
        """Drop what is held, and read again from the committed offsets after some seconds, unless the
        partitions were revoked."""
        if self.current is assignment:
            await self.release()
        if self._assigned is assignment.partitions and not self._stop.is_set():
            self.current = self._begin(assignment.partitions, rest)

    async def release(self) -> None:
        """Stop reading, append and commit finished pages, and drop the rest, within `shutdown_seconds`."""
        async with self._releasing:
            assignment, self.current = self.current, None
            if assignment is None:
                return
            ended = {task for task in (assignment.reading, *assignment.feeding) if task}
            for task in ended:
                task.cancel()
            if ended:
                await asyncio.wait(ended)
            assignment.end()
            if writing := assignment.writing:
                ending = self._tasks.spawn(self._hand_over(assignment, writing))
                _, late = await asyncio.wait({ending}, timeout=self._shutdown_seconds)
                if late:
                    log.warning("handover_too_slow", shutdown_seconds=self._shutdown_seconds)
                    for task in (writing, ending):
                        task.cancel()
                    await asyncio.wait({writing, ending})
            stats = self._stats
            stats.held_bytes, stats.paused, stats.partitions, stats.offsets = 0, False, 0, {}

    async def _hand_over(self, assignment: Assignment, writing: asyncio.Task[None]) -> None:
        """After the last append, commit that no attempt at a page failed."""
        await asyncio.wait({writing})
        if not writing.cancelled() and writing.exception() is None:
            await assignment.commits.hand_over()
