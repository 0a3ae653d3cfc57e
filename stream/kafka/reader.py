"""Readers for the topics with one partition, journal and decisions."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Self

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from stream.errors import BrokerError, RefusedError, StateError, TrimmedLogError
from stream.judge.batch import BATCH_BYTES, Entry, digest_of
from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.client_owner import ClientOwner
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import ASK_SECONDS, bounds_soon, settled_bounds
from stream.kafka.outage import Outage, retry_until_answered
from stream.messages.journal import Genesis, decode_journal
from stream.settings import Settings

POLL_SECONDS = 0.2
RECORDS_AT_ONCE: Final = 16
"""Maximum number of records per poll. Fetches are bounded before decompression, which may make a thousand
bytes of one; a record is bounded by what its producer may send."""
SHORT_SECONDS = 60.0
"""How long a log may appear to end before a record that is known to exist. A newly elected leader may not
know the committed end of the log yet."""


class TopicReader(ClientOwner):
    """Reads the committed records of partition 0 of `topic`, from offset `start` on."""

    def __init__(self, settings: Settings, topic: str, start: int) -> None:
        self.topic, self.position = topic, start
        self._partition = TopicPartition(topic, 0)
        self._settings = settings
        self._consumer = clients.reader(
            settings, auto_offset_reset="none", max_partition_fetch_bytes=8 << 20, fetch_max_wait_ms=100
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(clients.open_client(self._settings, self._consumer, patiently=True))
        # Without a grant to see the topic, aiokafka would search for its leader forever: check first.
        client = client_of(self._consumer)
        await retry_until_answered(
            f"topic {self.topic}", lambda: broker_metadata.metadata(client, [self.topic])
        )
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, self.position)

    async def poll(self, seconds: float = POLL_SECONDS) -> list[Any]:
        """Return the next records, possibly none. Raises TrimmedLogError if they were deleted, and StateError
        if the log ends before them."""
        try:
            fetched = await self._consumer.getmany(
                self._partition, timeout_ms=int(seconds * 1000), max_records=RECORDS_AT_ONCE
            )
        except OffsetOutOfRangeError:
            at = await retry_until_answered(f"topic {self.topic}", self.bounds)
            kind = TrimmedLogError if self.position < at.start else StateError
            raise kind(
                f"topic {self.topic}: offset {self.position} is needed, but it contains {at.start} to"
                f" {at.end}"
            ) from None
        records: list[Any] = fetched.get(self._partition, [])
        self.position = await self._consumer.position(self._partition)
        return records

    def seek(self, offset: int) -> None:
        """Continue at `offset`."""
        self._consumer.seek(self._partition, offset)
        self.position = offset

    @property
    def stable(self) -> int | None:
        """The last stable offset as of the last fetch; None before any fetch."""
        stable = self._consumer.last_stable_offset(self._partition)
        return None if stable is None else int(stable)

    @property
    def leader(self) -> int | None:
        """Id of the broker that leads the topic's partition; None if it is not known."""
        leader = client_of(self._consumer).cluster.leader_for_partition(self._partition)
        return None if leader is None or leader < 0 else int(leader)

    async def bounds(self) -> LogBounds:
        """Return the log bounds, which include control records. Raises BrokerError if the leader does not
        answer."""
        return (await bounds_soon(client_of(self._consumer), [self.topic]))[self._partition]

    async def settled_bounds(self, on_iteration: Callable[[], None] = lambda: None) -> LogBounds:
        """Return the log bounds as `open_transactions.settled_bounds` does."""
        settled = await settled_bounds(client_of(self._consumer), [self.topic], on_iteration)
        return settled[self._partition]

    async def reach(self) -> None:
        """Check that a broker answers. Raises BrokerError if none does for long."""
        await broker_metadata.cluster_id(client_of(self._consumer))


class JournalReader:
    """Reads the rows of the journal in order, from the position of `records`.

    Each record is returned once, unless it is given back. Raises SchemeMismatchError for a record whose
    fingerprints do not have the scheme of the genesis.
    """

    def __init__(self, records: TopicReader, genesis: Genesis) -> None:
        self._topic = records
        self._genesis = genesis
        self._waiting: deque[Entry] = deque()
        self._rows = self._bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._ahead: asyncio.Task[None] | None = None
        self._outage = Outage(f"records of topic {records.topic}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Stop reading ahead. `records` are closed by their owner."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    @property
    def topic(self) -> str:
        """Name of the journal's topic."""
        return self._topic.topic

    @property
    def position(self) -> int:
        """The next offset to fetch."""
        return self._topic.position

    @property
    def remaining(self) -> int:
        """Number of records not returned yet, as of the last fetch."""
        return len(self._waiting) + max(0, (self._topic.stable or 0) - self._topic.position)

    @property
    def leader(self) -> int | None:
        """Id of the broker that leads the journal; None if it is not known."""
        return self._topic.leader

    def waiting_share(self, limit: int) -> float:
        """Return the rows fetched but not returned yet, as a fraction of a batch of at most `limit` rows and
        BATCH_BYTES; may exceed 1."""
        return max(self._rows / limit, self._bytes / BATCH_BYTES)

    @property
    def waiting_since(self) -> int | None:
        """Append time of the next record in milliseconds; None if it is not fetched yet."""
        return self._waiting[0].time if self._waiting else None

    async def next_rows(self, limit: int, seconds: float = POLL_SECONDS) -> list[Entry]:
        """Return the next records with at most `limit` rows and BATCH_BYTES, or a larger single one; none if
        there are no new ones.

        From the first call on, about as much is read ahead while the caller works. aiokafka by itself
        prefetches only once, and waits until that is consumed.
        """
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._read_ahead(limit))
            self._ahead.add_done_callback(lambda _: self._news.set())
        if not self._waiting and not self._ahead.done():
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        if not self._waiting and self._ahead.done():
            self._ahead.result()
        entries: list[Entry] = []
        rows = size = 0
        while self._waiting:
            rows, size = rows + len(self._waiting[0].rows), size + self._waiting[0].rows.nbytes
            if entries and (rows > limit or size > BATCH_BYTES):
                break
            entries.append(self._take())
        self._room.set()
        return entries

    def _take(self) -> Entry:
        entry = self._waiting.popleft()
        self._count(entry, -1)
        return entry

    def _count(self, entry: Entry, sign: int) -> None:
        self._rows += sign * len(entry.rows)
        self._bytes += sign * entry.rows.nbytes

    def give_back(self, entries: Sequence[Entry]) -> None:
        """Give back the records returned last, which will be returned again."""
        self._waiting.extendleft(reversed(entries))
        for entry in entries:
            self._count(entry, 1)

    async def _read_ahead(self, limit: int) -> None:
        while True:
            while self.waiting_share(limit) >= 1:
                self._room.clear()
                await self._room.wait()
            await self._fetch(POLL_SECONDS)
            if self._waiting:
                self._news.set()
            await asyncio.sleep(0)  # getmany does not yield while it has buffered records

    @property
    def is_unreachable(self) -> bool:
        """Whether the journal's leader does not deliver records that are waited for."""
        return self._outage.is_ongoing

    async def read_up_to(
        self,
        end: int,
        on_iteration: Callable[[], None] = lambda: None,
        *,
        short_seconds: float = SHORT_SECONDS,
    ) -> list[Entry]:
        """Return all further records below offset `end`, of which the last must be at `end - 1`.

        Waits without limit while the leader is unreachable, calling `on_iteration`. Raises StateError if the
        leader reports for `short_seconds` that the log ends before `end`, or if there is no record at `end -
        1`.
        """
        read_at, short_since = time.monotonic(), None
        while self.position < end and not (self._waiting and self._waiting[-1].offset >= end - 1):
            before = self.position
            await self._fetch(POLL_SECONDS)
            on_iteration()
            if self.position > before:
                read_at, short_since = time.monotonic(), None
                self._outage.end()
                continue
            try:
                log_end = (await self._topic.bounds()).end
            except BrokerError as error:
                short_since = None
                self._outage.note(error)
                continue
            now = time.monotonic()
            short_since = (short_since or now) if log_end < end else None
            if short_since is not None:
                if now - short_since >= short_seconds:
                    raise StateError(
                        f"topic {self._topic.topic}: decisions end at {end}, but the log ends at {log_end}: "
                        "it lost records; restore it, or use another namespace"
                    )
            elif now - read_at > ASK_SECONDS:
                self._outage.note(f"its leader answers, but does not deliver offset {self.position}")
        self._outage.end()
        entries: list[Entry] = []
        while self._waiting and self._waiting[0].offset < end:
            entries.append(self._take())
        if not entries or entries[-1].offset != end - 1:
            raise StateError(
                f"topic {self._topic.topic}: decisions end at {end}, but there is no record at {end - 1}"
            )
        return entries

    async def _fetch(self, seconds: float) -> None:
        for record in await self._topic.poll(seconds):
            rows = decode_journal(record.value, record.offset)
            if isinstance(rows, Genesis):
                raise RefusedError(
                    f"topic {self._topic.topic} offset {record.offset}: a genesis, which has a topic of its "
                    "own: an earlier version of neardup wrote this journal; use a new namespace"
                )
            rows.refuse_foreign(self._genesis, f"topic {self._topic.topic} offset {record.offset}")
            entry = Entry(record.offset, record.timestamp, digest_of(record.value), rows)
            self._waiting.append(entry)
            self._count(entry, 1)


@asynccontextmanager
async def journal_reader(settings: Settings, start: int, genesis: Genesis) -> AsyncIterator[JournalReader]:
    """Open a reader of the namespace's journal, from offset `start` on."""
    async with (
        TopicReader(settings, TopicNames(settings.namespace).journal, start) as records,
        JournalReader(records, genesis) as reader,
    ):
        yield reader
