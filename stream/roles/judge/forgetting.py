"""Follows the requests to forget pages, as long as a judge leads, and decides them between batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from stream.errors import RecordError
from stream.failpoints import reach
from stream.futures import retrieved
from stream.judge.forgetting import MOST_FORGOTTEN, Search
from stream.judge.judge import Judge
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import TopicReader
from stream.messages.requests import ForgetRequest, decode_request
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.judge.watch import JudgeWatch
from stream.settings import Settings
from stream.tables.store.scrub_child import Throttle

POLL_SECONDS: Final = 1.0
"""Time between looks for requests."""
READ_SECONDS: Final = 0.05
"""Time for which requests are read before the judge goes on. Very many take several turns of its loop."""
REQUESTS_AT_ONCE: Final = 65_536
"""Requests decided at once, at most."""
SHARE: Final = 0.5
"""Fraction of time for which a search works. It competes with the judge for processors and the disk."""

log = structlog.get_logger(__name__)


class _StoppedError(Exception):
    """The judge ends, and with it the search."""


class ForgetRequests:
    """The requests to forget pages: reads them, has their pages searched for, and decides them."""

    def __init__(
        self, requests: TopicReader, judge: Judge, publisher: VerdictPublisher, watch: JudgeWatch
    ) -> None:
        self._requests = requests
        self._judge, self._publisher, self._watch = judge, publisher, watch
        self._next_poll = 0.0
        self._waiting, self._end = list[tuple[int, ForgetRequest]](), requests.position
        """Requests that were read and are not searched for, with their offsets; and the offset after those
        that were."""
        self._oldest = 0
        """When the first of them was appended, in milliseconds since the epoch."""
        self._search: Search | None = None
        self._searching: asyncio.Task[None] | None = None
        self._stop = threading.Event()

    async def attend(self) -> None:
        """Read new requests, for a moment, and begin to search for their pages once no more come."""
        began = time.monotonic()
        if self._search is not None or began < self._next_poll:
            return
        while len(self._waiting) < REQUESTS_AT_ONCE and (records := await self._requests.poll(0)):
            self._read(records)
            if time.monotonic() > began + READ_SECONDS:
                return
        self._next_poll = began + POLL_SECONDS
        if self._requests.position == self._end:
            return
        waiting, self._waiting, self._end = self._waiting, [], self._requests.position
        log.info("forget_requested", requests=len(waiting), end=self._end)
        self._watch.note_requests(len(waiting), self._oldest)
        reach("forget.requested")
        self._search = Search(self._judge.state, self._judge.genesis, waiting, self._end)
        self._begin(self._search)

    def _read(self, records: Iterable[Any]) -> None:
        for record in records:
            try:
                request = decode_request(record.value, record.offset)
                if request.journal != self._judge.genesis.journal:
                    raise RecordError(f"requests offset {record.offset}: is about another journal")
            except RecordError as error:
                log.error("request_refused", message=str(error))
                continue
            if not self._waiting:
                self._oldest = record.timestamp
            self._waiting.append((record.offset, request))

    def _begin(self, search: Search) -> None:
        self._searching = retrieved(asyncio.create_task(in_thread(self._run, search)))

    def _run(self, search: Search) -> None:
        throttle = Throttle(SHARE, self._stop.wait)

        def turn() -> None:
            throttle.turn()
            if self._stop.is_set():
                raise _StoppedError

        with self._watch.stage("search"):
            search.run(turn)

    @property
    def is_due(self) -> bool:
        """Whether pages that were searched for can be forgotten."""
        return self._searching is not None and self._searching.done()

    async def decide(self) -> None:
        """Forget pages that were found, at most MOST_FORGOTTEN, in a transaction of its own. Does nothing yet
        if there is more to read than the judge waits for. No transaction may be in flight. Any error must end
        the judge."""
        search, judge = self._search, self._judge
        assert search is not None and self._searching is not None  # noqa: S101, PT018 (`is_due`)
        self._searching.result()
        if search.remaining() > MOST_FORGOTTEN:  # more than can be read while the judge waits
            self._begin(search)
            return
        with self._watch.stage("forget"):
            record = await in_thread(search.record)
            forgotten = record.forgotten
            assert forgotten is not None  # noqa: S101 (by `record`)
            ended = await in_thread(judge.ended_clusters, record)
            offset, appended = await self._publisher.publish_removal(record, ended, "forget.sent")
            reach("forget.decided")
            await in_thread(judge.apply_apart, record, offset, appended)
        pages = sum(map(len, forgotten.numbers))
        log.info("forgotten", offset=offset, pages=pages, end=forgotten.requests)
        self._watch.metrics.forgotten.inc(pages)
        if search.note_forgotten(forgotten):
            self._search = self._searching = None
            self._watch.note_requests(0, 0)

    async def close(self) -> None:
        """End a running search."""
        self._stop.set()
        if self._searching is not None:
            self._searching.cancel()  # which waits for its thread
            await asyncio.wait([self._searching])


@asynccontextmanager
async def forget_requests(
    settings: Settings, judge: Judge, publisher: VerdictPublisher, watch: JudgeWatch
) -> AsyncIterator[ForgetRequests]:
    """Open the requests that are not decided. Ends a running search on exit."""
    topic, position = TopicNames(settings.namespace).requests, judge.state.meta.forgetting.requests
    async with TopicReader(settings, topic, position) as reader:
        at = await retry_until_answered(f"topic {topic}", reader.bounds)
        if not at.start <= position <= at.end:
            log.error("requests_lost", topic=topic, needed=position, start=at.start, end=at.end)
            reader.seek(at.start)
        requests = ForgetRequests(reader, judge, publisher, watch)
        try:
            yield requests
        finally:
            await requests.close()
