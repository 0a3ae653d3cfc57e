"""Reads, beside the loop of a judge, which segments are announced and what probers answer about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from stream.errors import RecordError, RefutedAnswerError, StateError
from stream.failpoints import reach
from stream.judge.batch import Entry
from stream.judge.segments.answer import Answer, Segment
from stream.judge.segments.answer_records import SentAnswer, decode_answer
from stream.judge.segments.probed import ProbedSegments
from stream.kafka.follower import Follower
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames, record_name
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import JournalReader
from stream.kafka.topic_subscription import TopicSubscription
from stream.messages.segments import decode_segment
from stream.roles.judge.watch import JudgeWatch
from stream.settings import Settings

WAIT_SECONDS: Final = 0.2
"""Time for which `Probing.wait` waits at most."""
FIRST_WARNING: Final = 2.0
LAST_WARNING: Final = 60.0
"""Seconds between warnings that an answer is awaited, at first and at most."""
MOST_UNKNOWN: Final = 1024
"""Segments of which it is said once that they are not announced."""

log = structlog.get_logger(__name__)


class Probing:
    """The segments that are announced, and the answers of probers about them."""

    def __init__(self, probed: ProbedSegments, journal: JournalReader, watch: JudgeWatch) -> None:
        self._probed, self._journal, self._watch = probed, journal, watch
        self._unknown = set[Segment]()
        """Segments of answers that are not announced."""
        self._journal_end = 0
        """The end of the journal, when it was last looked at."""
        self._all_announced, self._answered = asyncio.Event(), asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []
        self._awaited_offset, self._since, self._next_warning = -1, 0.0, FIRST_WARNING

    @asynccontextmanager
    async def beside(self, settings: Settings) -> AsyncIterator[None]:
        """Read announcements and answers while entered; all announcements of before are read on entry."""
        names = TopicNames(settings.namespace)
        announced = TopicSubscription(
            settings, names.segments, from_beginning=True, report_waiting=lambda _: self._all_announced.set()
        )
        sent = TopicSubscription(settings, names.candidates, used=lambda: self._probed.partitions)
        async with sent, announced:
            self._reading = [
                asyncio.create_task(self._read_segments(announced)),
                asyncio.create_task(self._read_answers(sent)),
            ]
            try:
                while not self._all_announced.is_set():
                    self._refuse_errors()
                    await asyncio.sleep(WAIT_SECONDS / 4)
                yield
            finally:
                for task in self._reading:
                    task.cancel()
                await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read_segments(self, announced: TopicSubscription) -> None:
        async for record in announced:
            name = record_name(record)
            self._probed.announce(decode_segment(record.key, record.value, name), name)
            self._watch.note_segments(self._probed)

    async def _read_answers(self, sent: TopicSubscription) -> None:
        async for record in sent:
            name = record_name(record)
            try:
                answer = decode_answer(record.value, name)
                await self._refuse_beyond(answer.answer, name)
                is_known = self._probed.add(answer, name)
            except RecordError as error:
                self._note_refused(error)
                continue
            self._watch.metrics.answers.labels("taken" if is_known else "unknown").inc()
            if not is_known:
                self._note_unknown(answer, name)
            self._answered.set()

    def _note_unknown(self, sent: SentAnswer, name: str) -> None:
        """Name an answer of a segment that is not announced, perhaps not any more; the first one of each."""
        segment = sent.answer.segment
        if segment not in self._unknown and len(self._unknown) < MOST_UNKNOWN:
            self._unknown.add(segment)
            log.info("answer_unknown", record=name, segment=str(segment), holder=sent.holder)

    def _note_refused(self, error: RecordError) -> None:
        self._watch.metrics.answers.labels("refused").inc()
        log.error("answer_refused", message=str(error))

    async def _refuse_beyond(self, answer: Answer, name: str) -> None:
        """Raise RecordError for an answer about records that are not in the journal yet: it knows nothing of
        what they will have."""
        self._journal_end = max(self._journal_end, self._journal.end)
        if not answer.run.is_before(self._journal_end):
            topic = f"topic {self._journal.topic}"
            _, self._journal_end = await retry_until_answered(topic, self._journal.bounds)
            if not answer.run.is_before(self._journal_end):
                raise RecordError(f"{name}: {answer}, but {topic} ends at {self._journal_end}")

    def _refuse_errors(self) -> None:
        for task in self._reading:
            if task.done():
                task.result()

    def lead(self) -> None:
        """Need answers about what was dropped, as the judge leads from now on. Raises StateError if no
        segments of these anchors are announced."""
        self._refuse_errors()
        self._probed.need_dropped()

    def attend(self) -> None:
        """Let go of what is decided. Raises what reading raised."""
        self._refuse_errors()
        for error in self._probed.attend():
            self._note_refused(error)

    def due(self) -> Segment | None:
        """Return the segment of which tables can be dropped, if there is one."""
        return self._probed.due()

    async def drop(self, segment: Segment) -> None:
        """Drop the tables of a segment that is due. No batch may be ahead of the store."""
        with self._probed.dropping(segment) as drop_tables:
            await in_thread(drop_tables)
        reach("judge.dropped_segment")
        log.info("dropped_segment", first=segment.first, end=segment.end)
        self._watch.note_segments(self._probed)

    def split(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Return which of these journal records can be decided by the answers that are there, and which
        follow. `wait` then waits for answers that come later. Raises AnswerError if groups of probers
        differ."""
        self._answered.clear()
        for error in self._probed.meet(entries):
            self._note_refused(error)
        until = self._probed.answered_until(entries[0].offset, entries[-1].offset + 1)
        answered = [entry for entry in entries if entry.offset < until]
        return answered, list(entries[len(answered) :])

    def refuse(self, refuted: RefutedAnswerError) -> None:
        """Go on without an answer that says what cannot be."""
        self._note_refused(self._probed.refuse(refuted))

    def note_decided(self) -> None:
        """Note that nothing is awaited any more."""
        if self._awaited_offset >= 0:
            self._awaited_offset = -1
            self._watch.metrics.awaited_seconds.set(0)

    async def wait(self, offset: int) -> None:
        """Wait a little for answers that came after `split`, about this journal record, the next one to
        decide."""
        now = time.monotonic()
        if offset != self._awaited_offset:
            self._awaited_offset, self._since, self._next_warning = offset, now, FIRST_WARNING
        waited = now - self._since
        self._watch.metrics.awaited_seconds.set(waited)
        if waited >= self._next_warning:
            self._next_warning = waited + min(2 * self._next_warning, LAST_WARNING)
            awaited = self._probed.awaited(offset)
            log.warning(
                "awaits_answer",
                record=offset,
                segment=str(awaited.segment) if awaited else "any",
                holder=(awaited.holder if awaited else "") or "none yet",
                seconds=round(waited, 1),
                message="probers have not answered about this journal record, or their lists are too short",
            )
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._answered.wait()
        except TimeoutError:
            pass


@asynccontextmanager
async def open_probing(
    settings: Settings, follower: Follower, watch: JudgeWatch
) -> AsyncIterator[Probing | None]:
    """Let a judge find candidates by answers of probers, too; None without the setting `prober_replicas`.

    Raises StateError if tables were dropped, and nobody is to answer for their anchors.
    """
    judge, tables = follower.judge, follower.state.tables
    if not settings.prober_replicas:
        if tables.held > tables.first:
            raise StateError(
                f"state directory {follower.directory}: has no tables of anchors"
                f" [{tables.first}, {tables.held}), which were dropped as probers answer for them: set"
                " prober_replicas, or take the tables back with `neardup judge --take-back all`"
            )
        yield None
        return
    probed = ProbedSegments(judge.state, judge.rule, judge.genesis, settings.prober_replicas)
    probing = Probing(probed, follower.journal, watch)
    async with probing.beside(settings):
        judge.candidates = probed.search
        watch.note_segments(probed)
        yield probing
