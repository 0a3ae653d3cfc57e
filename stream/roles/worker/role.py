"""The worker role: fingerprints pages into the journal, at least once, in contiguous ranges (rules 1 to
6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import Final

import structlog

from stream.children.child import FINGERPRINTER
from stream.children.memory import memory_limit, overcommitted
from stream.children.pool import ChildPool, configuration_of
from stream.failpoints import reach
from stream.fingerprint.row import Row
from stream.futures import retrieved
from stream.kafka import clients
from stream.kafka.aiokafka_internals import raise_group_errors
from stream.kafka.journal_producer import open_journal_producer
from stream.messages.journal import Genesis, Rows
from stream.pages.outside.schema_registry import registry_of
from stream.roles.role import Role
from stream.roles.worker.assignment import Assignment
from stream.roles.worker.backlog import Backlog, JournalBatch
from stream.roles.worker.careful import feed_carefully
from stream.roles.worker.consumer import open_consumer
from stream.roles.worker.dead_letters import DeadLetters
from stream.roles.worker.dispatch import ChunkQueue, Dispatch
from stream.roles.worker.offset_commits import OffsetCommits
from stream.roles.worker.polling import POLL_RECORDS, Polling
from stream.roles.worker.positions import open_partitions, verify_topic
from stream.roles.worker.rebalances import Rebalances
from stream.roles.worker.reject_limit import RejectLimit
from stream.roles.worker.tasks import Tasks
from stream.roles.worker.watch import WorkerStats, WorkerWatch
from stream.settings import Settings

PROGRESS_SECONDS: Final = 5
"""Interval of progress in the log while the worker has work."""
SLOW_SECONDS: Final = 0.5
"""When a page takes this long, the pages after it go to another child."""
log = structlog.get_logger(__name__, role="worker")


class WorkerRole(Role[WorkerWatch]):
    """One member of the workers' consumer group.

    Memory: pages and rows take at most `worker_memory` plus POLL_RECORDS records. In addition, aiokafka
    buffers about two fetch responses per broker, of min(16 MiB, worker_memory / 8) each unless a single
    record batch is larger, and one decompressed batch. Each child takes a chunk and up to `child_memory`.
    """

    topics, grants = "worker", "worker"

    def __init__(self, settings: Settings, *, fingerprinter: str = FINGERPRINTER) -> None:
        self.stats = WorkerStats()
        super().__init__(settings, WorkerWatch(self))
        self._fingerprinter = fingerprinter
        self._reject_limit = RejectLimit(settings.reject_limit)
        self._tasks = Tasks()
        self._rebalances = Rebalances(
            self._begin, self._stop, self._tasks, self.stats, self.watch, settings.shutdown_seconds
        )

    @property
    def refusing(self) -> bool:
        """Whether appending is paused because of `reject_limit`."""
        return self._reject_limit.why is not None

    @property
    def opened(self) -> Backlog | None:
        """The backlog of the assigned partitions; None without an assignment, or while it is being opened."""
        current = self._rebalances.current
        return current.backlog if current and current.is_open else None

    # The loop: pages -> backlog -> children -> backlog -> journal -> committed offsets. Under an assignment,
    # `_read`, a `_feed` for each child, `_write` and `OffsetCommits.follow` run beside each other, and
    # `feed_carefully` where attempts at pages failed before.

    async def _read(self, assignment: Assignment, rest: float) -> None:
        """Read pages of the assigned partitions into the backlog for the children, after a pause of `rest`
        seconds."""
        if rest:
            await self._polling.rest(assignment.keys, rest)
        waiting, careful = await self._open(assignment)
        ends: dict[int, int] = {}
        while True:
            self.watch.health.turn()
            count = 0
            for partition, records in (await self._polling.poll()).items():
                self.watch.read(records)
                count += len(records)
                ends[partition.partition] = records[-1].offset + 1
                queue = careful if assignment.positions.careful(partition.partition) else waiting
                queue.put(assignment.backlog.add(partition.partition, records))
                assignment.note_pages()
            self._throttle(assignment)
            if 0 < count < POLL_RECORDS and assignment.may_check_topic_id:
                # Check while children process these pages, so that their append need not wait for it.
                checking = self._tasks.spawn(self._verify_topic(assignment, ends))
                assignment.check_topic_id(ends, checking)
                ends = {}
            await self._polling.gather(assignment.keys, count)

    async def _feed(self, assignment: Assignment, queue: ChunkQueue) -> None:
        """Keep one child busy with queued chunks."""
        while True:
            dispatch = await queue.take()
            if begun := assignment.positions.begin(dispatch.partitions):
                await assignment.commits.save(begun)
            answered = partial(self._answered, assignment, dispatch)
            with self.watch.stage("fingerprint"):
                work = retrieved(
                    asyncio.create_task(
                        self._pool.fingerprint(dispatch.values, answered, busy=assignment.backlog.behind)
                    )
                )
                try:
                    while not (await asyncio.wait({work}, timeout=SLOW_SECONDS))[0]:
                        queue.put_back(dispatch.take_after_slow_page())
                        self._note_slow(assignment, dispatch)
                    work.result()
                finally:
                    work.cancel()

    async def _write(self, assignment: Assignment) -> None:
        """Append finished pages to the journal. Each batch takes all pages that are finished by then."""
        committing = self._tasks.spawn(assignment.commits.follow())
        full = False
        try:
            while batch := await assignment.finished(full=full):
                if self._refuses(batch):
                    self._tasks.spawn(self._try_again(assignment))
                    break
                with self.watch.batch(batch):
                    await self._append(batch, assignment)
                full = batch.full
                assignment.note_append(batch)
                self._throttle(assignment)
            assignment.commits.end()
            await committing
        finally:
            committing.cancel()

    async def _append(self, batch: JournalBatch, assignment: Assignment) -> None:
        source, check = assignment.backlog.source, assignment.topic_id_check
        with self.watch.stage("verify"):
            if check and check.covers(batch):
                await check.answer
            else:
                await self._verify_topic(assignment, batch.ends)
        with self.watch.stage("bury"):
            async with clients.acknowledgement_limit(f"topic {self.names.rejected}"):
                await self._dead_letters.send(source, batch.rejected)
        rows = Rows.of(
            self._genesis.scheme,
            batch.ranges,
            batch.rows,
            batch.offsets,
            batch.keys,
            batch.traces,
        )
        reach("worker.before_append")
        with self.watch.stage("append"):
            async with clients.acknowledgement_limit(f"topic {self.names.journal}"):
                await self._producer.send_and_wait(self.names.journal, rows.encode(), partition=0)
        reach("worker.append")
        self.stats.add(batch)
        self.watch.note_append(batch)

    # Details of the loop.

    async def _open(self, assignment: Assignment) -> tuple[ChunkQueue, ChunkQueue]:
        """Find the start positions, and start the tasks that feed children and append. Returns the queue for
        all children, and the queue of pages to be tried alone."""
        client, partitions = self._producer.client, assignment.partitions
        backlog, positions = await open_partitions(
            self.settings, client, self._consumer, self.names.pages, partitions
        )
        commits = OffsetCommits(self._consumer, backlog.source, positions, self.watch.stage)
        assignment.open(backlog, positions, commits)
        waiting, careful = ChunkQueue(backlog), ChunkQueue(backlog)
        spawn = self._tasks.spawn
        assignment.writing = spawn(self._write(assignment))
        if positions.any_careful:
            feeding = feed_carefully(
                assignment, careful, waiting, self._pool, self.watch.stage, self._answered
            )
            assignment.feeding.append(spawn(feeding))
        assignment.feeding += (
            spawn(self._feed(assignment, waiting)) for _ in range(self.settings.worker_processes)
        )
        return waiting, careful

    def _answered(self, assignment: Assignment, dispatch: Dispatch, rows: Sequence[Row]) -> None:
        dispatch.answer(rows)
        assignment.note_rows()
        self._throttle(assignment)

    def _note_slow(self, assignment: Assignment, dispatch: Dispatch) -> None:
        """Count an attempt at a slow page, because it may end the worker."""
        partition, _ = dispatch.current_page
        if dispatch.slow and assignment.positions.slow(partition):
            assignment.commits.add({partition})

    def _throttle(self, assignment: Assignment) -> None:
        if assignment is self._rebalances.current:
            self.stats.crashes = self._pool.crashes
            self._polling.throttle(assignment.keys, assignment.backlog.held)

    async def _verify_topic(self, assignment: Assignment, partitions: Collection[int]) -> None:
        """Raise TopicError if pages of these partitions may come from a recreated topic."""
        client, source = self._producer.client, assignment.backlog.source
        await verify_topic(client, self._consumer, source, partitions)

    # Reject limit: while a producer's fault would reject nearly all pages, nothing is appended or committed,
    # and the pages are read and fingerprinted again periodically (rule 5).

    def _refuses(self, batch: JournalBatch) -> bool:
        before = self._reject_limit.why
        refused = self._reject_limit.refuses(batch)
        if before and not self._reject_limit.why:
            log.info("accepting_again")
        self.watch.health.trouble = self._reject_limit.why
        return refused

    async def _try_again(self, assignment: Assignment) -> None:
        """Drop the backlog, and start again from the committed offsets after a pause."""
        pause = self._reject_limit.pause()
        log.error("refusing", error=self._reject_limit.why, next_try_seconds=pause)
        await self._rebalances.begin_again(assignment, pause)

    # Startup and shutdown. An error in a task ends `_fingerprint_on`.

    async def _work(self, genesis: Genesis) -> None:
        """Fingerprint pages until the role is to end. Finished pages are appended before."""
        if wrong := overcommitted(self.settings, memory_limit(), "worker_memory"):
            log.warning("memory_overcommitted", error=wrong)
        self._genesis = genesis
        # The first start compiles, which may take longer than the liveness check allows.
        starting = self.watch.excused("starting children", self._children())
        async with self._entered(starting) as pool:
            if pool is not None:
                self._pool = pool
                async with self._entered(self._clients()) as connected:
                    if connected:
                        await self._fingerprint_on()

    def _children(self) -> ChildPool:
        configuration = configuration_of(
            self.settings, self._genesis.scheme, self._genesis.seed, self._fingerprinter
        )
        return ChildPool(self.settings.worker_processes, configuration, registry_of(self.settings))

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[bool]:
        """Start producer and consumer. On exit the consumer leaves the group first."""
        settings, watch = self.settings, self.watch
        async with AsyncExitStack() as stack:
            with watch.health.excuse("waiting for brokers"):
                self._producer = await stack.enter_async_context(open_journal_producer(settings))
                self._consumer = await stack.enter_async_context(open_consumer(settings))
                self._dead_letters = await DeadLetters.to(self._producer, self.names.rejected)
            self._polling = Polling(
                self._consumer, self.names.pages, settings.worker_memory, self.stats, watch.health
            )
            watch.connected(self._producer.client, self._consumer)
            yield True

    async def _fingerprint_on(self) -> None:
        """Join the group, and work until `stop` or an error."""
        try:
            self._tasks.spawn(self._watch())
            self._consumer.subscribe([self.names.pages], listener=self._rebalances)
            log.info("worker_started", group=self.names.workers, scheme=self._genesis.scheme_id)
            if await self._unless_stopped(self._tasks.failure()) is None:
                log.info("worker_stopping")
                await self._rebalances.release()
                log.info("worker_stopped", **asdict(self.stats))
            self._tasks.raise_failure()
        finally:
            await self._tasks.end()

    def _begin(self, partitions: frozenset[int], rest: float) -> Assignment:
        """Start an assignment, which is read after a pause of `rest` seconds."""
        assignment = Assignment(self.names.pages, partitions)
        self.stats.partitions = len(partitions)
        self._reject_limit.assign(partitions)
        assignment.reading = self._tasks.spawn(self._read(assignment, rest))
        return assignment

    async def _watch(self) -> None:
        """Raise errors of the group, also while nothing polls."""
        logged = 0
        for second in count(1):
            await asyncio.sleep(1)
            raise_group_errors(self._consumer)
            self.watch.look()
            if self.opened is None:
                self.watch.health.turn()  # without partitions the worker waits for the group
            if second % PROGRESS_SECONDS == 0 and self.stats.records != logged:
                logged = self.stats.records
                log.info("progress", **asdict(self.stats))
