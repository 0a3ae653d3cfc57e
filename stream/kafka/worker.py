"""The worker: pages -> journal, at least once, in ranges that chain (rules 1 to 6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, OffsetOutOfRangeError

from stream.children.child import FINGERPRINTER
from stream.children.memory import memory_limit, overcommitted
from stream.children.pool import ChildPool, configuration_of
from stream.errors import StaleError, TopicError
from stream.failpoints import reach
from stream.fingerprint.row import Row, Status
from stream.kafka import acl_check, broker_metadata, clients, topics
from stream.kafka.aiokafka_internals import as_if_polling, fetch_committed, raise_group_errors
from stream.kafka.attempts import MOST, NONE, Positions, attempts_of
from stream.kafka.away import answered
from stream.kafka.backlog import Backlog, Batch, Source
from stream.kafka.dead_letters import DeadLetters
from stream.kafka.decided_positions import expected_offsets
from stream.kafka.dispatch import Handful, Waiting
from stream.kafka.names import Names
from stream.kafka.positions import begin, counts, topic_id_at_leaders
from stream.kafka.reject_limit import RejectLimit
from stream.kafka.worker_clients import started_consumer, started_producer
from stream.kafka.worker_watch import WorkerStats, WorkerWatch
from stream.messages.journal import Genesis, Rows
from stream.ops.server import ops_server
from stream.ops.signals import entered_unless_stopped, stop_event_on_signals, unless_stopped
from stream.pages.outside.schema_registry import registry_of
from stream.settings import Settings

PROGRESS_SECONDS: Final = 5
"""How often a working worker says what it has done."""
POLL_MS: Final = 500
POLL_RECORDS: Final = 64
"""Records taken from the consumer before the held bytes are looked at again."""
FETCH_SECONDS: Final = 0.01
"""How long after pages came the next are fetched: it costs worker and broker as much as a small page."""
SLOW_SECONDS: Final = 0.5
"""Pages behind one that takes so long go to another child."""
COMPANY_SECONDS: Final = 0.015
"""How long an append waits for company while children are at work (rule 3)."""
BUSY_SECONDS: Final = 0.25
"""The same while more than a chunk waits for children: pages wait for seconds then, and each append costs the
broker a transaction of the judge. At 0.1 s all roles together took a quarter more of the processors."""
COMMIT_SECONDS: Final = 0.1
"""How long a commit waits for company: whatever is appended meanwhile is committed with it."""
GIVEN_UP: Final = "took the whole worker down, at the last two of three attempts with no other page at hand"
log = structlog.get_logger(__name__, role="worker")


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A question to the leaders for the topic's id; with those before it, it covers pages fetched earlier."""

    ends: dict[int, int]
    """By partition, the offset after the last page that it covers."""
    answer: asyncio.Task[None]

    def covers(self, batch: Batch) -> bool:
        return all(end <= self.ends.get(partition, -1) for partition, end in batch.ends.items())


@dataclass(slots=True, eq=False)
class _Shift:
    """One assignment of partitions: everything read under it ends with it."""

    partitions: frozenset[int]
    backlog: Backlog | None = None
    reading: asyncio.Task[None] | None = None
    writing: asyncio.Task[None] | None = None
    feeding: list[asyncio.Task[None]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to append."""
    asked: _Asked | None = None
    """The last question that did not wait for a batch."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while every page has its row."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    positions: Positions = field(default_factory=Positions)
    unsaved: set[int] = field(default_factory=set)
    """Partitions whose positions are to be committed."""
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One commit at a time: one that is repeated must not overtake a later one."""
    appended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to commit."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when pages went into the journal."""
    alone: bool = False
    """Whether the next row is of a page that was tried alone: no others come to keep it company."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing will be appended any more."""

    @property
    def may_ask(self) -> bool:
        """Whether no question is under way."""
        return self.asked is None or self.asked.answer.done()

    def __post_init__(self) -> None:
        self.idle.set()


class WorkerRole(ConsumerRebalanceListener):  # type: ignore[misc]
    """One member of the group `workers`.

    Memory: held pages and rows stay below `worker_memory` + POLL_RECORDS records. On top, aiokafka holds
    about two fetch responses a broker, of min(16 MiB, worker_memory / 8) each unless a single record batch
    is larger, and one decompressed batch; and each child a chunk and what `child_memory` allows it.
    """

    def __init__(self, settings: Settings, *, fingerprinter: str = FINGERPRINTER) -> None:
        self.settings = settings
        self.names = Names(settings.namespace)
        self.stats = WorkerStats()
        self.watch = WorkerWatch(self)
        self.ops_url: str | None = None
        """Where its metrics and health are served."""
        self._fingerprinter = fingerprinter
        self._stop = asyncio.Event()
        self._assigned: frozenset[int] | None = None
        self._shift: _Shift | None = None
        self._releasing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reject_limit = RejectLimit(settings.reject_limit)

    @property
    def refusing(self) -> bool:
        """Whether nothing is appended, because nearly all pages would be rejected."""
        return self._reject_limit.why is not None

    @property
    def opened(self) -> Backlog | None:
        """What is held of the assigned partitions; None while there is no assignment, or it begins."""
        return self._shift.backlog if self._shift else None

    def stop(self) -> None:
        """Ask `run` to finish what is finished, leave the group and return."""
        self._stop.set()

    async def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop()`. Any error ends it: start again, nothing is lost."""
        if wrong := overcommitted(self.settings, memory_limit(), "worker_memory"):
            log.warning("memory_overcommitted", error=wrong)
        with stop_event_on_signals(self._stop), clients.explained_errors():
            async with ops_server(self.settings, self.watch.metrics, self.watch.health) as self.ops_url:
                with self.watch.health.excused("waiting for the genesis"):
                    genesis = await unless_stopped(self._stop, self._genesis_of_sound_topics())
                if genesis is None:
                    return
                self._genesis = genesis
                async with AsyncExitStack() as children:
                    # A first start compiles, which on a busy machine takes longer than a loop may hang.
                    with self.watch.health.excused("starting children"):
                        pool = await unless_stopped(
                            self._stop, children.enter_async_context(self._children())
                        )
                    if pool is not None:
                        self._pool = pool
                        async with entered_unless_stopped(self._stop, self._clients()) as connected:
                            if connected:
                                await self._work()

    async def _genesis_of_sound_topics(self) -> Genesis:
        """Wait for the genesis (rule 6); refuse another behaviour, and topics that lose records (rule 14)."""
        genesis = await topics.wait_for_genesis(self.settings)
        await answered("a broker", lambda: topics.check(self.settings, "worker"))
        # Else what it needs rarely, to read the decisions, would be refused long after the start.
        await answered("a broker", lambda: acl_check.demand(self.settings, "worker"))
        return genesis

    # The loop: pages -> backlog -> children -> backlog -> journal -> committed offsets.

    async def _read(self, shift: _Shift, rest: float) -> None:
        """Pages of the assigned partitions into the backlog and to the children, after a rest."""
        if rest:
            await self._rest(shift, rest)
        backlog = shift.backlog = await self._open(shift)
        waiting, careful = Waiting(backlog), Waiting(backlog)
        shift.writing = self._spawn(self._write(shift, backlog))
        if shift.positions.any_careful:
            shift.feeding.append(self._spawn(self._feed_carefully(shift, backlog, careful, waiting)))
        shift.feeding += (
            self._spawn(self._feed(shift, backlog, waiting)) for _ in range(self.settings.worker_processes)
        )
        ends: dict[int, int] = {}
        while True:
            self.watch.health.turn()
            count = 0
            for partition, records in (await self._poll()).items():
                self.watch.read(records)
                count += len(records)
                ends[partition.partition] = records[-1].offset + 1
                queue = careful if shift.positions.careful(partition.partition) else waiting
                queue.put(backlog.add(partition.partition, records))
                shift.idle.clear()
            self._throttle(shift, backlog)
            if 0 < count < POLL_RECORDS and shift.may_ask:
                # While children are at these pages, so that their append need not wait for it.
                shift.asked = _Asked(
                    (shift.asked.ends if shift.asked else {}) | ends,
                    self._spawn(self._verify_topic(ends, backlog.source)),
                )
                ends = {}
            await self._pace(shift, count)

    async def _feed(self, shift: _Shift, backlog: Backlog, waiting: Waiting) -> None:
        """Keep one child busy with whatever waits."""
        while True:
            handful = await waiting.take()
            if begun := shift.positions.begin(handful.partitions):
                await self._save(shift, backlog.source, begun)
            answered = partial(self._answered, shift, backlog, handful)
            with self.watch.stage("fingerprint"):
                work = asyncio.create_task(
                    self._pool.fingerprint(handful.values, answered, busy=backlog.behind)
                )
                try:
                    while not (await asyncio.wait({work}, timeout=SLOW_SECONDS))[0]:
                        waiting.put_back(handful.beyond_a_slow_page())
                        self._note_slow(shift, handful)
                    work.result()
                finally:
                    work.cancel()

    def _answered(self, shift: _Shift, backlog: Backlog, handful: Handful, rows: list[Row]) -> None:
        handful.answer(rows)
        shift.news.set()
        if not backlog.unanswered:
            shift.idle.set()
        self._throttle(shift, backlog)

    def _note_slow(self, shift: _Shift, handful: Handful) -> None:
        """Count the attempt at a page that takes long: perhaps it takes the worker down."""
        partition, _ = handful.at_hand
        if handful.slow and shift.positions.slow(partition):
            shift.unsaved.add(partition)
            shift.appended.set()

    async def _feed_carefully(
        self, shift: _Shift, backlog: Backlog, careful: Waiting, waiting: Waiting
    ) -> None:
        """Pages at which workers may have ended: each alone, and in the journal before the next."""
        positions = shift.positions
        while True:
            handful = await careful.take_one()
            partition, page = handful.at_hand
            with self.watch.stage("fingerprint"):
                row = await self._try_alone(shift, backlog.source, partition, page, handful.values[0])
            if row is None:  # the partitions are somebody else's now
                return
            shift.alone = True
            self._answered(shift, backlog, handful, [row])
            while positions.offset(partition) <= page:
                shift.moved.clear()
                await shift.moved.wait()
            shift.alone = False
            if not positions.careful(partition):
                waiting.put_back(careful.remove(partition))

    async def _try_alone(
        self, shift: _Shift, source: Source, partition: int, page: int, value: bytes | None
    ) -> Row | None:
        """The page's row, by a child or because it has had its attempts; None when they cannot be counted."""
        positions = shift.positions
        if positions.convicts(partition, page):
            log.error("page_given_up", topic=source.topic, partition=partition, offset=page, attempts=MOST)
            return Row(Status.REJECTED, None, None, None, reason="crash", detail=GIVEN_UP)

        async def before() -> bool:
            positions.try_alone(partition, page)
            return await self._save(shift, source, {partition})

        async def after() -> None:
            positions.passed(partition)
            await self._save(shift, source, {partition})

        return await self._pool.fingerprint_alone(value, before, after)

    async def _write(self, shift: _Shift, backlog: Backlog) -> None:
        """Finished prefixes into the journal; one append at a time, as full as it has become meanwhile."""
        committing = self._spawn(self._commit(shift, backlog.source))
        full = False
        try:
            while batch := await self._finished(shift, backlog, full):
                if self._refuses(batch):
                    self._spawn(self._try_again(shift))
                    break
                with self.watch.batch(batch):
                    await self._append(batch, shift, backlog)
                full = batch.full
                backlog.release(batch)
                shift.positions.advance(batch.ranges)
                shift.unsaved |= batch.ends.keys()
                shift.appended.set()
                shift.moved.set()
                self._throttle(shift, backlog)
            shift.written.set()
            shift.appended.set()
            await committing
        finally:
            committing.cancel()

    async def _append(self, batch: Batch, shift: _Shift, backlog: Backlog) -> None:
        stage = self.watch.stage
        with stage("verify"):
            if shift.asked and shift.asked.covers(batch):
                await shift.asked.answer
            else:
                await self._verify_topic(batch.ends, backlog.source)
        with stage("bury"):
            async with clients.acknowledged(f"topic {self.names.rejected}"):
                await self._dead_letters.bury(backlog.source, batch.rejected)
        rows = Rows.of(
            self._genesis.scheme, batch.ranges, batch.rows, batch.offsets, batch.keys, batch.traces
        )
        reach("worker.before_append")
        with stage("append"):
            async with clients.acknowledged(f"topic {self.names.journal}"):
                await self._producer.send_and_wait(self.names.journal, rows.encode(), partition=0)
        reach("worker.append")
        self._count(batch)

    async def _commit(self, shift: _Shift, source: Source) -> None:
        """Committed offsets follow the journal, beside the next append: nothing depends on how closely."""
        while not shift.written.is_set() or shift.unsaved:
            await shift.appended.wait()
            shift.appended.clear()
            unsaved, shift.unsaved = shift.unsaved, set()
            if unsaved:
                with self.watch.stage("commit"):
                    await self._save(shift, source, unsaved)
            with suppress(TimeoutError):
                await asyncio.wait_for(shift.written.wait(), COMMIT_SECONDS)

    # Reading.

    async def _open(self, shift: _Shift) -> Backlog:
        """Find where every assigned partition begins, and seek there (rule 4).

        aiokafka looks for positions by itself as soon as it has an assignment: it would fetch from a
        committed offset whose topic id nobody checked, and hand NoOffsetForPartitionError or
        OffsetOutOfRangeError to the next `getmany`. So nothing polls until this is done
        (`on_partitions_revoked` ended the reader before), and `seek` then makes it moot: it throws away
        records and errors fetched for the partition; answers to fetches still under way are thrown away
        for not being at the position (fetcher.py, `_proc_fetch_request`); and a position search still
        under way finds the position valid and stops (`_update_fetch_positions`).

        The topic id is asked for first: if the topic is recreated later on, offsets and pages may be the new
        topic's, but `_verify_topic` will not let them into the journal under the old id.
        """
        client, topic = self._producer.client, self.names.pages
        keys = [TopicPartition(topic, partition) for partition in sorted(shift.partitions)]
        if keys:
            topic_id = await topic_id_at_leaders(client, self._consumer, topic, shift.partitions)
        else:
            topic_id = (await broker_metadata.topic_ids(client, [topic]))[topic]
        backlog = Backlog(Source(await broker_metadata.cluster_id(client), topic, topic_id))
        committed = await fetch_committed(self._consumer, keys)
        ours = {key: committed[key] for key in keys if counts(committed.get(key), backlog.source)}
        read = {key: each.offset for key, each in ours.items()}
        sources = {key: (backlog.source.cluster, topic_id, key.partition) for key in keys if key not in read}
        with as_if_polling(self._consumer):
            judged = await expected_offsets(self.settings, client, sources.values())
        # Asked last: reading the decisions may take minutes, in which retention goes on and others read.
        bounds = await broker_metadata.log_bounds(client, [topic])
        if missing := [key.partition for key in keys if key not in bounds]:
            raise TopicError(f"topic {topic} has no partitions {missing} any more: it is being recreated")
        for key in keys:
            known = judged.get(sources[key]) if key in sources else None
            start = begin(backlog, key.partition, read.get(key), known, bounds[key])
            self._consumer.seek(key, start)
            attempts = attempts_of(ours[key].metadata) if key in ours else NONE
            if attempts != NONE:
                log.warning(
                    "reading_carefully",
                    topic=topic,
                    partition=key.partition,
                    attempts=attempts.count,
                    page=attempts.page,
                )
            # Not from `start`, as long as the journal has no word of what was lost before it.
            positions = [read.get(key), known, start]
            shift.positions.take(
                key.partition, next(each for each in positions if each is not None), attempts
            )
        log.info("reading", topic=topic, topic_id=topic_id, partitions=sorted(shift.partitions))
        shift.news.set()
        return backlog

    async def _poll(self) -> dict[TopicPartition, list[Any]]:
        try:
            found: dict[TopicPartition, list[Any]] = await self._consumer.getmany(
                timeout_ms=POLL_MS, max_records=POLL_RECORDS
            )
        except OffsetOutOfRangeError as error:
            raise StaleError(
                f"topic {self.names.pages}: the log does not hold the next offset ({error}): retention took "
                "pages before they were read, or the topic was recreated; a restart declares what is lost"
            ) from error
        return found

    async def _pace(self, shift: _Shift, count: int) -> None:
        """After a poll: let pages gather for a moment, unless there are more at hand, or none came."""
        if self.stats.paused or not 0 < count < POLL_RECORDS:
            await asyncio.sleep(0)  # getmany does not yield while it has records at hand
            return
        keys = self._keys(shift)
        # Not only by polling later: aiokafka would fetch at once, and have the first page that comes.
        self._consumer.pause(*keys)
        await asyncio.sleep(FETCH_SECONDS)
        if not self.stats.paused:
            self._consumer.resume(*keys)

    def _keys(self, shift: _Shift) -> list[TopicPartition]:
        return [TopicPartition(self.names.pages, partition) for partition in shift.partitions]

    def _throttle(self, shift: _Shift, backlog: Backlog) -> None:
        """Fetch nothing while more than `worker_memory` is held, until half of it is free."""
        if shift is not self._shift:
            return
        held = self.stats.held_bytes = backlog.held
        self.stats.most_held_bytes = max(self.stats.most_held_bytes, held)
        self.stats.crashes = self._pool.crashes
        keys = self._keys(shift)
        if not self.stats.paused and held > self.settings.worker_memory:
            self._consumer.pause(*keys)
            self.stats.paused = True
        elif self.stats.paused and held <= self.settings.worker_memory // 2:
            self._consumer.resume(*keys)
            self.stats.paused = False

    # Writing.

    async def _finished(self, shift: _Shift, backlog: Backlog, full: bool) -> Batch | None:
        """The next batch; None when the shift is over.

        Unless the last one was `full`, rows wait for company while children are at work: an append costs
        worker and broker as much as a page, and who is behind saves work rather than a moment.
        """
        while True:
            await shift.news.wait()
            shift.news.clear()
            if not (full or shift.alone or shift.idle.is_set()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        shift.idle.wait(), BUSY_SECONDS if backlog.behind else COMPANY_SECONDS
                    )
            batch = backlog.take()
            if batch or shift.ending.is_set():
                shift.news.set()  # there may be more
                return batch

    async def _verify_topic(self, partitions: Collection[int], source: Source) -> None:
        """Refuse pages that were fetched from a recreated topic: fetches name topics, not their ids."""
        topic_id = await topic_id_at_leaders(self._producer.client, self._consumer, source.topic, partitions)
        if topic_id != source.topic_id:
            raise TopicError(
                f"topic {source.topic} was recreated while it was read: its id was {source.topic_id} and is "
                f"{topic_id}; a restart begins with the new topic"
            )

    async def _save(self, shift: _Shift, source: Source, partitions: set[int]) -> bool:
        """Commit the positions of these partitions, as they are once it is their turn; whether they are."""
        async with shift.saving:
            commits = shift.positions.commits(partitions, source.topic_id)
            try:
                await self._consumer.commit(
                    {TopicPartition(source.topic, partition): each for partition, each in commits.items()}
                )
            except (CommitFailedError, IllegalStateError) as error:
                # The partitions are somebody else's now, who reads and appends these pages once more: the
                # judge drops what it has judged (rule 7).
                log.warning("commit_refused", commits=commits, error=str(error))
                return False
        return True

    def _count(self, batch: Batch) -> None:
        self.stats.pages += len(batch.rows)
        self.stats.rejected += len(batch.rejected)
        self.stats.records += 1
        self.stats.lost += sum(each.end - each.start for each in batch.ranges if each.lost)
        self.stats.offsets |= batch.ends
        self.watch.appended(batch)

    # Refusing: while a producer's fault would have nearly all pages rejected, nothing is appended, and
    # nothing is committed; from time to time the pages are read and fingerprinted once more (rule 5).

    def _refuses(self, batch: Batch) -> bool:
        before = self._reject_limit.why
        refused = self._reject_limit.refuses(batch)
        if before and not self._reject_limit.why:
            log.info("accepting_again")
        self.watch.health.trouble = self._reject_limit.why
        return refused

    async def _try_again(self, shift: _Shift) -> None:
        """Drop what is held, and begin again from the committed offsets, after a pause."""
        pause = self._reject_limit.pause()
        log.error("refusing", error=self._reject_limit.why, next_try_seconds=pause)
        if self._shift is shift:
            await self._release()
        if self._assigned is shift.partitions and not self._stop.is_set():
            self._begin(shift.partitions, pause)

    async def _rest(self, shift: _Shift, seconds: float) -> None:
        """Fetch nothing, and poll nevertheless: a member of the group that does not poll is expelled."""
        keys, until = self._keys(shift), time.monotonic() + seconds
        self._consumer.pause(*keys)
        while (left := until - time.monotonic()) > 0:
            self.watch.health.turn()
            await self._consumer.getmany(timeout_ms=min(POLL_MS, int(left * 1000) + 1))
        self._consumer.resume(*keys)

    # Membership. Partitions come and go by callbacks of the consumer's coordinator, in its own task; it waits
    # for them, and logs their exceptions away, so they only start and end shifts.

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin to read; errors reach `run` through the reader's task."""
        if self._stop.is_set() or self._failed.done():
            return
        self.watch.metrics.rebalances.inc()
        self._assigned = frozenset(key.partition for key in assigned)
        self._begin(self._assigned)

    def _begin(self, partitions: frozenset[int], rest: float = 0.0) -> None:
        """A shift, `rest` seconds from now."""
        shift = self._shift = _Shift(partitions)
        self.stats.partitions = len(partitions)
        self._reject_limit.assign(partitions)
        shift.reading = self._spawn(self._read(shift, rest))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Hand over cleanly: the group is waiting, for at most `rebalance_timeout_ms`."""
        self._assigned = None
        await self._release()

    async def _release(self) -> None:
        """Stop reading, append and commit what is finished, abandon the rest; within `shutdown_seconds`."""
        async with self._releasing:
            shift, self._shift = self._shift, None
            if shift is None:
                return
            ended = {task for task in (shift.reading, *shift.feeding) if task}
            for task in ended:
                task.cancel()
            if ended:
                await asyncio.wait(ended)
            if shift.backlog:
                shift.backlog.keep_finished()
            shift.ending.set()
            shift.idle.set()
            shift.news.set()
            if shift.writing and shift.backlog:
                ending = self._spawn(self._hand_over(shift, shift.writing, shift.backlog.source))
                _, late = await asyncio.wait({ending}, timeout=self.settings.shutdown_seconds)
                if late:
                    log.warning("handover_too_slow", shutdown_seconds=self.settings.shutdown_seconds)
                    for task in (shift.writing, ending):
                        task.cancel()
                    await asyncio.wait({shift.writing, ending})
            self.stats.held_bytes, self.stats.paused, self.stats.partitions = 0, False, 0
            self.stats.offsets = {}

    async def _hand_over(self, shift: _Shift, writing: asyncio.Task[None], source: Source) -> None:
        """Once all is written, say that no attempt at a page failed here."""
        await asyncio.wait({writing})
        whole = not writing.cancelled() and writing.exception() is None
        if whole and (changed := shift.positions.hand_over()):
            await self._save(shift, source, changed)

    # Life and death.

    async def _work(self) -> None:
        """Join the group and work until told to stop or something fails."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._spawn(self._watch())
            self._consumer.subscribe([self.names.pages], listener=self)
            log.info("worker_started", group=self.names.workers, scheme=self._genesis.scheme_id)
            if await unless_stopped(self._stop, self._failure()) is None:
                log.info("worker_stopping")
                await self._release()
                log.info("worker_stopped", **asdict(self.stats))
            if self._failed.done():
                self._failed.result()
        finally:
            self._failed.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _failure(self) -> bool:
        await asyncio.wait({self._failed})
        return True

    async def _watch(self) -> None:
        """Raise what went wrong in the consumer's coordinator, also while nobody polls."""
        told = 0
        for second in count(1):
            await asyncio.sleep(1)
            raise_group_errors(self._consumer)
            self.watch.look()
            if self.opened is None:
                self.watch.health.turn()  # no partitions to read: the group takes its time, not the loop
            if second % PROGRESS_SECONDS == 0 and self.stats.records != told:
                told = self.stats.records
                log.info("progress", **asdict(self.stats))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task whose failure ends the worker."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)

    def _children(self) -> ChildPool:
        configuration = configuration_of(self.settings, self._genesis.scheme, self._fingerprinter)
        return ChildPool(self.settings.worker_processes, configuration, registry_of(self.settings))

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[bool]:
        """Producer and consumer, ended in the order that leaves the group first."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            with self.watch.health.excused("waiting for brokers"):
                self._producer = await stack.enter_async_context(started_producer(settings))
                self._consumer = await stack.enter_async_context(started_consumer(settings))
                self._dead_letters = await DeadLetters.to(self._producer, self.names.rejected)
            self.watch.connected(self._producer.client, self._consumer)
            yield True
