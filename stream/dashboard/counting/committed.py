"""Faust's Kafka consumer, adapted for exact counting.

It reads committed records only, passes a batch of records as one message, and makes skipped records visible.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import FetchResult
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

from stream.dashboard.counting.faust_internals import is_changelog
from stream.kafka.aiokafka_internals import (
    client_of,
    fetched_records,
    keep_fetched_in,
    raise_offset_errors,
    read_committed,
    wrap_batches,
)

BATCHES_AT_ONCE: Final = 16
"""Maximum number of record batches per fetch, of at most a megabyte each when they are decompressed."""
BEFORE: Final = "before"
"""Added header: the offset of the previously fetched record. It is absent after a seek."""


@dataclass(slots=True)
class BatchRecords:
    """Records in order: the value of the message that represents a batch."""

    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    folded: bool = False
    """Whether all rows of the batch are stored, so that it may be acknowledged."""

    def __len__(self) -> int:
        return len(self.offsets)

    def clear(self) -> None:
        """Free the memory, because Faust keeps the message until it is acknowledged."""
        self.offsets.clear()
        self.values.clear()


@dataclass(frozen=True, slots=True)
class _Whole:
    """A record that represents a whole batch. Its offset is that of the last record."""

    offset: int
    value: BatchRecords
    timestamp: int
    timestamp_type: int
    key: None = None
    checksum: None = None
    headers: tuple[()] = ()


class _Batch:
    """Wraps a batch of records, which then yields one `_Whole` with all of them."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[_Whole]:
        records, last = BatchRecords(), None
        for last in self._batch:
            records.offsets.append(last.offset)
            records.values.append(last.value)
        if last is not None:
            yield _Whole(last.offset, records, last.timestamp, last.timestamp_type)


class _Batches:
    """Wraps the fetched batches. aiokafka still filters out batches that are not committed."""

    def __init__(self, result: Any) -> None:
        self.has_next = result.has_next
        self._next_batch = result.next_batch

    def next_batch(self) -> _Batch | None:
        batch = self._next_batch()
        return None if batch is None else _Batch(batch)


class _Fetched(OrderedDict[Any, Any]):
    """aiokafka's buffer of fetched records. All but those of changelogs are wrapped to yield whole
    batches."""

    def __init__(self, results: Mapping[Any, Any], one_by_one: Callable[[Any], bool]) -> None:
        self._one_by_one = one_by_one
        super().__init__()
        for partition, result in results.items():
            self[partition] = result

    def __setitem__(self, partition: Any, result: Any) -> None:
        if isinstance(result, FetchResult) and not self._one_by_one(partition):
            wrap_batches(result, _Batches)
        super().__setitem__(partition, result)


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        read_committed(consumer)  # Faust sets it for its own transactions only
        raise_offset_errors(client_of(consumer))
        return consumer

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: Any,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Any:
        store, of_changelog = fetched_records(consumer), partial(is_changelog, self.consumer)
        if not isinstance(store, _Fetched):
            keep_fetched_in(consumer, _Fetched(store, of_changelog))
        if of_changelogs_alone(active_partitions, of_changelog):
            return await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        return await super()._fetch_records(consumer, active_partitions, timeout, BATCHES_AT_ONCE)


class _Consumer(Consumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fetched: dict[Any, int] = {}
        self._folded: dict[Any, int] = {}
        """Partition -> the end of the last batch folded since the last seek."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, with fetching stopped.

        Faust clears the queues of its agents afterwards. Records that were fetched after the seek would be
        dropped, and lost for good once later ones are committed. Faust resumes fetching when the queues are
        cleared.
        """
        self.stop_flow()
        await super().perform_seek()

    async def seek_to_committed(self) -> Any:
        """Seek to the committed offsets, or to the beginning of partitions without one.

        aiokafka would leave the position of such a partition unchanged. Records fetched and dropped during
        recovery would never be read: a dashboard killed before its first commit made no progress.
        """
        committed = await super().seek_to_committed()
        # The records before may have been read already, or by another dashboard.
        self._fetched.clear()
        self._folded.clear()
        never = [tp for tp, offset in committed.items() if not offset and not is_changelog(self, tp)]
        if never:
            await self._thread.seek_to_beginning(*never)
        return committed

    def ack(self, message: Any) -> bool:
        """Acknowledge a batch that is folded, and no other."""
        if not message.value.folded:
            return False
        end = message.offset + 1
        self._folded[message.tp] = max(end, self._folded.get(message.tp, end))
        return bool(super().ack(message))

    def _new_offset(self, tp: Any) -> int | None:
        """Return the offset to commit, which is the end of the last batch that was folded.

        Faust itself acknowledges batches that a stream skips, and those in its queue after the agent has
        failed: their verdicts would be missing for good. It also commits a single run of consecutive offsets
        per interval, but only the last offset of a batch is acknowledged.
        """
        self._acked[tp].clear()
        self._acked_index[tp].clear()
        return self._folded.get(tp)

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:
        """Keep no gaps, which `_new_offset` does not need."""

    def _to_message(self, tp: Any, record: Any) -> Any:
        message = super()._to_message(tp, record)
        before = self._fetched.get(tp, -1)
        self._fetched[tp] = record.offset
        # Offsets need not be consecutive: control records and aborted records leave gaps.
        message.headers = {BEFORE: str(before).encode()} if 0 <= before < record.offset else {}
        return message


class CommittedTransport(Transport):
    """Faust's Kafka transport with the consumer above."""

    Consumer = _Consumer


def of_changelogs_alone(partitions: Iterable[Any] | None, of_changelog: Callable[[Any], bool]) -> bool:
    """Return whether a fetch from these partitions, or from all, brings records of changelogs alone."""
    some = list(partitions or ())
    return bool(some) and all(map(of_changelog, some))


def records_skipped(message: Any, last: int | None) -> bool:
    """Return whether records between the `last` one delivered and this one were fetched but not delivered."""
    before = message.headers.get(BEFORE)
    return before is not None and int(before) != last
