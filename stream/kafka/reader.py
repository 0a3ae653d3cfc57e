"""Reading our own one-partition topics in order: the journal and the decisions."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import OffsetOutOfRangeError

from stream.errors import RecordError, SchemeMismatchError, StateError
from stream.judge.batch import Entry, digest_of
from stream.kafka import clients, cluster
from stream.messages.journal import Genesis, decode_journal
from stream.settings import Settings

POLL_SECONDS = 0.2


class TopicReader:
    """Records of partition 0 of `topic`, committed ones only, from `start` on."""

    def __init__(self, settings: Settings, topic: str, start: int) -> None:
        self.topic, self.position = topic, start
        self._partition = TopicPartition(topic, 0)
        self._consumer = clients.consumer(
            settings,
            group_id=None,
            auto_offset_reset="none",
            isolation_level="read_committed",
            enable_auto_commit=False,
            max_partition_fetch_bytes=8 << 20,
            fetch_max_wait_ms=100,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
            # Without a grant to see the topic, aiokafka would look for its leader for ever: ask first.
            await cluster.metadata(self.client, [self.topic])
            self._consumer.assign([self._partition])
            self._consumer.seek(self._partition, self.position)
        except BaseException:  # told to stop in the middle: the connection must not stay
            await self._consumer.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    async def poll(self, seconds: float = POLL_SECONDS) -> list[Any]:
        """The next records, possibly none. Raises StateError when retention has taken them."""
        try:
            found = await self._consumer.getmany(self._partition, timeout_ms=int(seconds * 1000))
        except OffsetOutOfRangeError:
            first, end = await self.bounds()
            raise StateError(
                f"topic {self.topic}: offset {self.position} is wanted, but it holds {first} to {end}"
            ) from None
        records: list[Any] = found.get(self._partition, [])
        self.position = await self._consumer.position(self._partition)
        return records

    @property
    def end(self) -> int | None:
        """The offset after the last committed record, as the last fetch saw it; None before any."""
        end = self._consumer.last_stable_offset(self._partition)
        return None if end is None else int(end)

    @property
    def client(self) -> AIOKafkaClient:
        """For questions to the cluster."""
        return self._consumer._client

    async def bounds(self) -> tuple[int, int]:
        """First offset, and the one after the last (control markers included)."""
        first = await self._consumer.beginning_offsets([self._partition])
        end = await self._consumer.end_offsets([self._partition])
        return first[self._partition], end[self._partition]


class JournalReader:
    """The journal's rows, in order. A record is handed out once.

    Raises SchemeMismatchError at a record whose fingerprints are not of the genesis' scheme.
    """

    def __init__(self, settings: Settings, topic: str, start: int, genesis: Genesis) -> None:
        self._topic = TopicReader(settings, topic, start)
        self._genesis = genesis
        self._waiting: deque[Entry] = deque()
        self._rows = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._ahead: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._topic.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
        await self._topic.__aexit__(*exception)

    @property
    def position(self) -> int:
        """The next offset that will be read."""
        return self._topic.position

    @property
    def remaining(self) -> int:
        """Records that were not handed out, as far as the last fetch saw."""
        return len(self._waiting) + max(0, (self._topic.end or 0) - self._topic.position)

    @property
    def rows_waiting(self) -> int:
        """Rows that were read and not handed out."""
        return self._rows

    @property
    def waiting_since(self) -> int | None:
        """Append time, in milliseconds, of the next record where it was fetched already."""
        return self._waiting[0].time if self._waiting else None

    async def next_rows(self, limit: int, seconds: float = POLL_SECONDS) -> list[Entry]:
        """The next records, up to `limit` rows unless the first alone has more; none when it is quiet.

        From the first call on, records are read while the caller is at those before, about `limit` rows:
        alone, aiokafka fetches once ahead, as soon as one record is there, and no more until that was taken.
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
        taken: list[Entry] = []
        rows = 0
        while self._waiting and (not taken or rows + len(self._waiting[0].rows) <= limit):
            rows += len(self._waiting[0].rows)
            taken.append(self._waiting.popleft())
        self._rows -= rows
        self._room.set()
        return taken

    async def _read_ahead(self, limit: int) -> None:
        while True:
            while self._rows >= limit:
                self._room.clear()
                await self._room.wait()
            await self._fetch(POLL_SECONDS)
            if self._waiting:
                self._news.set()
            await asyncio.sleep(0)  # getmany does not yield while it has records at hand

    async def up_to(self, end: int, deadline: float = 60.0) -> list[Entry]:
        """All records not handed out yet below offset `end`; the last must stand at `end - 1`."""
        try:
            async with asyncio.timeout(deadline):
                while not self._waiting or self._waiting[-1].offset < end - 1:
                    await self._fetch(POLL_SECONDS)
        except TimeoutError:
            raise StateError(
                f"topic {self._topic.topic}: decisions end at {end}, but no record stands at {end - 1}"
            ) from None
        taken: list[Entry] = []
        while self._waiting and self._waiting[0].offset < end:
            taken.append(self._waiting.popleft())
        self._rows -= sum(len(entry.rows) for entry in taken)
        if not taken or taken[-1].offset != end - 1:
            raise StateError(f"topic {self._topic.topic}: decisions end at {end}, where no record ends")
        return taken

    async def bounds(self) -> tuple[int, int]:
        """First offset, and the one after the last."""
        return await self._topic.bounds()

    async def _fetch(self, seconds: float) -> None:
        for record in await self._topic.poll(seconds):
            rows = decode_journal(record.value, record.offset)
            if isinstance(rows, Genesis):
                # Not always at offset 0: a creator that died in its transaction left an aborted one there.
                if rows != self._genesis:
                    raise RecordError(f"{self._topic.topic} offset {record.offset}: a second genesis")
                continue
            if rows.scheme != self._genesis.scheme_id:
                raise SchemeMismatchError(
                    f"topic {self._topic.topic} offset {record.offset}: fingerprints of scheme "
                    f"{rows.scheme}, but the journal's are of scheme {self._genesis.scheme_id}"
                )
            self._waiting.append(Entry(record.offset, record.timestamp, digest_of(record.value), rows))
            self._rows += len(rows)
