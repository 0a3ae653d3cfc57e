"""The prober role: answers about candidates among the segments that its group gives it.

Nothing depends on how many probers there are, or on what they lose: a judge waits for answers, and takes from
late ones what has died since.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from stream.checkpoints.catalogue import Catalogue
from stream.errors import DiskError, SettingsError, StateError
from stream.failpoints import reach
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Segment
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.held_segment import HeldSegment
from stream.kafka import acl_check, clients, topics
from stream.kafka.in_flight import in_thread
from stream.kafka.member import member_id
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.tasks import Tasks
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.ops.runtime_tuning import batch_process_tuning
from stream.ops.server import ops_server
from stream.ops.signals import enter_unless_stopped, run_unless_stopped, stop_event_on_signals
from stream.roles.prober.following import Decided, Following, open_following
from stream.roles.prober.loading import Loading
from stream.roles.prober.membership import Membership
from stream.roles.prober.schedule import Schedule, Task
from stream.roles.prober.segment_files import SegmentFiles
from stream.roles.prober.sending import AnswerSender
from stream.roles.prober.undecided_pages import RecordPages, RunPages, UndecidedPages
from stream.roles.prober.watch import ProberWatch
from stream.settings import Settings

THREADS: Final = 2
"""Segments that are searched at the same time. Compiled loops and RocksDB release the GIL."""
FEW: Final = 128
"""Rows of a single task up to which the event loop answers it itself, mostly within some milliseconds. To
hand it to a thread would take about as long again."""
SLOW_SECONDS: Final = 0.05
"""Time that so many rows of the last answer took, from which on threads answer few rows, too. Of a flood, or
from a slow disk, each row may take many milliseconds, in which the loop would attend to nothing else."""
TURN_SECONDS: Final = 0.25
"""The loop turns at least this often."""
log = structlog.get_logger(__name__)


class ProberRole:
    """One prober process."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without a store of checkpoints."""
        if not settings.checkpoints:
            raise SettingsError("checkpoints: not set; it names the store that has the files of segments")
        self.settings, self.names = settings, TopicNames(settings.namespace)
        self.watch = ProberWatch()
        self.ops_url: str | None = None
        """Where its metrics and health are served."""
        group = settings.prober_group
        name = f"prober-{group}" if group else "prober"
        self.directory: Final = settings.state_dir / settings.namespace / name
        """Where files and tables of segments are."""
        self._stop = asyncio.Event()
        self._tasks = Tasks()
        self._held: dict[Segment, tuple[SegmentRecord, HeldSegment]] = {}
        self._pages: UndecidedPages
        self._took = 0.0
        """Seconds that FEW rows of the last answer took, or all of it if it has less."""

    def stop(self) -> None:
        """Ask `run` to return."""
        self._stop.set()

    @property
    def held(self) -> list[Segment]:
        """The segments about which it answers, in order."""
        return sorted(self._held)

    def holding(self, segment: Segment) -> HeldSegment:
        """A segment that is held."""
        return self._held[segment][1]

    async def run(self) -> None:
        """Answer until SIGTERM, SIGINT or `stop()`. Any error is raised; the recovery is a restart."""
        with batch_process_tuning(), stop_event_on_signals(self._stop), clients.translated_errors():
            async with ops_server(self.settings, self.watch.metrics, self.watch.health) as self.ops_url:
                await self._run()

    # The loop: apply what was decided, hold what was loaded, answer, send.

    async def _answer_on(
        self, schedule: Schedule, following: Following, loading: Loading, sender: AnswerSender
    ) -> None:
        with ThreadPoolExecutor(THREADS, "answer") as pool:
            while not self._stop.is_set():
                self._tasks.raise_failure()
                sender.raise_failure()
                self.watch.health.turn()
                following.news.clear()
                await self._apply(schedule, following)
                # First what is to go: the same anchors may have been exported again, as another file.
                await self._release(schedule, loading)
                await self._hold(schedule, following, loading)
                self._read(schedule, following)
                following.note_room()
                now = time.monotonic()
                if tasks := schedule.take(now, THREADS):
                    await self._answer(schedule, tasks, sender, pool)
                else:
                    await self._wait(following, schedule.wait(now))

    async def _apply(self, schedule: Schedule, following: Following) -> None:
        """Apply decision records: their anchors die in all segments."""
        records = following.take_decided()
        if not records:
            return
        with self.watch.stage("apply"):
            if all(record.deaths.are_none for record in records):
                died = self._kill(records)  # sooner than a thread begins
            else:
                died = await in_thread(self._kill, records)
        now = time.monotonic()
        for segment, numbers in died.items():
            schedule.note_deaths(segment, numbers, now)
        schedule.note_decided(records[-1].end, now)
        if any(record.asks_again for record in records):
            schedule.note_asked_again()
        self._pages.drop(schedule.judged)
        self.watch.metrics.journal_position.set(schedule.judged)

    def _kill(self, records: Sequence[Decided]) -> dict[Segment, NDArray[np.int64]]:
        """Let the anchors of decision records die, and return those of each segment that did. A segment that
        has applied some of the records, because it was loaded lately, skips these."""
        died = {}
        for segment, (_, held) in self._held.items():
            some = [record for record in records if record.decided > held.decided]
            if some:
                deaths = DecidedDeaths.joined([record.deaths for record in some])
                died[segment] = held.kill(deaths, some[-1].decided)
        return died

    def _read(self, schedule: Schedule, following: Following) -> None:
        """Take over what was read of the journal."""
        for entry in following.take_entries():
            record = RecordPages.of(entry)
            if schedule.note_read(entry.offset, len(record.ids), record.all_rows):
                self._pages.add(record)

    async def _hold(self, schedule: Schedule, following: Following, loading: Loading) -> None:
        """Answer for a segment that is loaded."""
        if (ready := loading.claim()) is None:
            return
        await ready.catch_up(lambda: following.position)
        held, segment = ready.held, ready.held.segment
        self._held[segment] = ready.segment, held
        schedule.hold(segment)
        loading.note_held(ready)
        self.watch.metrics.held.labels(segment.first).set(segment.end - segment.first)
        reach("prober.loaded")

    async def _release(self, schedule: Schedule, loading: Loading) -> None:
        """Answer no more for segments that others hold now, or that have expired."""
        for segment, (record, held) in list(self._held.items()):
            if loading.is_wanted(held, record.digest):
                continue
            schedule.release(segment)
            del self._held[segment]
            self.watch.metrics.held.remove(str(segment.first))
            await in_thread(held.close)
            loading.note_released(record.digest)
            log.info("segment_released", first=segment.first, end=segment.end)

    async def _answer(
        self, schedule: Schedule, tasks: Sequence[Task], sender: AnswerSender, pool: ThreadPoolExecutor
    ) -> None:
        """Answer tasks, each of another segment, and send the answers."""
        with self.watch.stage("answer"):
            is_quick = self._took < SLOW_SECONDS
            if is_quick and len(tasks) == 1 and self._pages.rows(tasks[0].run) <= FEW:
                answers = [self._answered(tasks[0], self._pages.of(tasks[0].run), sender)]
            else:
                answers = await self._answered_in_threads(tasks, sender, pool)
        with self.watch.stage("send"):
            for task, (answer, values, rows) in zip(tasks, answers, strict=True):
                await sender.send(self._held[task.segment][0].partition, values)
                schedule.note_answered(answer, time.monotonic())
                self.watch.note_answered(task, answer, values, rows)

    async def _answered_in_threads(
        self, tasks: Sequence[Task], sender: AnswerSender, pool: ThreadPoolExecutor
    ) -> list[tuple[Answer, list[bytes], int]]:
        loop = asyncio.get_running_loop()
        pages = [self._pages.of(task.run) for task in tasks]  # here, as threads share them
        work = [
            loop.run_in_executor(pool, self._answered, task, each, sender)
            for task, each in zip(tasks, pages, strict=True)
        ]
        try:
            return await asyncio.gather(*work)
        finally:
            await asyncio.wait(work)

    def _answered(self, task: Task, run: RunPages, sender: AnswerSender) -> tuple[Answer, list[bytes], int]:
        """Return the answer of a task about these pages or the first of them, its records, and the number of
        rows."""
        began, (record, held) = time.monotonic(), self._held[task.segment]
        answer = held.answer(task.run, run.ids, run.pages, task.most, run.keys)
        values = sender.encode(record, answer)
        rows = int(np.searchsorted(run.ids, answer.run.until))
        self._took = (time.monotonic() - began) * FEW / max(rows, FEW)
        return answer, values, rows

    async def _wait(self, following: Following, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TURN_SECONDS if seconds is None else min(seconds, TURN_SECONDS)):
                await following.news.wait()

    # From the start of the process to the loop.

    async def _run(self) -> None:
        settings, stop = self.settings, self._stop
        with self.watch.health.excuse("waiting for the genesis"):
            genesis = await run_unless_stopped(stop, self._checked_genesis())
        if genesis is None:
            return
        with SegmentFiles(self.directory, Catalogue(settings.checkpoints or "")) as files:
            group = settings.prober_group
            instance = member_id(self.directory.with_suffix(".instance"))
            holder = f"{socket.gethostname()}-{instance[:8]}"
            opened: AbstractAsyncContextManager[Following] = open_following(settings, genesis)
            async with (
                enter_unless_stopped(stop, opened) as following,
                enter_unless_stopped(stop, AnswerSender(settings, genesis, group, holder)) as sender,
                enter_unless_stopped(
                    stop, Membership(settings, genesis, self.names.probers(group), instance, holder)
                ) as membership,
            ):
                if following is None or sender is None or membership is None:
                    return
                await self._follow(genesis, files, following, sender, membership)

    async def _checked_genesis(self) -> Genesis:
        """Wait for the genesis, and refuse missing grants and unsound topics."""
        settings = self.settings
        await retry_until_answered("a broker", lambda: acl_check.check(settings, "prober"))
        genesis = await topics.wait_for_genesis(settings)
        await retry_until_answered("a broker", lambda: topics.check(settings, "prober"))
        return genesis

    async def _follow(
        self,
        genesis: Genesis,
        files: SegmentFiles,
        following: Following,
        sender: AnswerSender,
        membership: Membership,
    ) -> None:
        rule = Rule(genesis.options, genesis.scheme)
        schedule, self._pages = Schedule(following.judged, rule.selected), UndecidedPages(rule)
        loading = Loading(
            self.settings, genesis, files, self.watch, lambda: following.position, following.news
        )
        tasks = self._tasks
        tasks.spawn(following.follow_decisions(lambda: schedule.awaits_decisions))
        tasks.spawn(following.follow_journal(lambda: schedule.room))
        tasks.spawn(self._attend(membership, loading, following))
        tasks.spawn(loading.run())
        try:
            with self.watch.following(
                lambda: loading.missing,
                lambda: following.journal.remaining,
                lambda: schedule.behind,
            ):
                await self._answer_on(schedule, following, loading, sender)
        finally:
            await tasks.end()
            await self._close_held()
        log.info("stopped", judged=schedule.judged)

    async def _close_held(self) -> None:
        """Close all segments. A failure of one is logged, not raised in place of what ended the prober: the
        next start applies the deaths that are not stored."""
        for segment, (_, held) in self._held.items():
            try:
                await in_thread(held.close)
            except (DiskError, StateError) as error:
                log.error("segment_not_closed", first=segment.first, end=segment.end, error=str(error))

    async def _attend(self, membership: Membership, loading: Loading, following: Following) -> None:
        """Take part in the group, for ever."""
        rebalances = 0
        while True:
            if await membership.poll():
                loading.want(membership.segments)
                following.news.set()
            self.watch.metrics.partitions.set(membership.partitions)
            self.watch.metrics.rebalances.inc(membership.rebalances - rebalances)
            rebalances = membership.rebalances
