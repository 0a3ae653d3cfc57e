"""Faust's Kafka consumer, adapted for exact counting.

It reads committed records only, passes a batch of records as one message, begins where the state ends, and
says of each batch where the one before it ended.

Checked against faust-streaming 0.15.3; `pyproject.toml` pins the minor version.
`tests/unit/test_faust_internals.py` tests that each overridden method still exists with the shape expected
here, so an incompatible version fails there.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

from stream.errors import StaleError
from stream.kafka.aiokafka_internals import (
    fetched_records,
    keep_fetched_in,
    read_committed,
    wrap_batches,
)

BATCHES_AT_ONCE: Final = 16
"""Maximum number of record batches per fetch, of at most a megabyte each when they are decompressed."""


@dataclass(slots=True)
class BatchRecords:
    """Records in order: the value of the message that represents a batch."""

    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    begin: int = 0
    """The offset after the record that was fetched before, or the one that was sought."""

    def __len__(self) -> int:
        return len(self.offsets)

    def clear(self) -> None:
        """Free the memory, because Faust keeps the message for a while."""
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
    """aiokafka's buffer of fetched records, which are wrapped to yield whole batches."""

    def __setitem__(self, partition: Any, result: Any) -> None:
        if isinstance(result, FetchResult):
            wrap_batches(result, _Batches)
        super().__setitem__(partition, result)


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        read_committed(consumer)  # Faust sets it for its own transactions only
        return consumer

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Report a partition that does not advance, and none whose position is not known yet. On a busy
        machine this is asked so early, and the dashboard crashed."""
        with contextlib.suppress(AssertionError):  # aiokafka's, for there is no position
            super().verify_event_path(now, tp)

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: Any,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Any:
        store = fetched_records(consumer)
        if not isinstance(store, _Fetched):
            keep_fetched_in(consumer, _Fetched(store))
        try:
            return await super()._fetch_records(consumer, active_partitions, timeout, BATCHES_AT_ONCE)
        except NoOffsetForPartitionError:  # assigned, not sought yet, and nothing is committed
            return {}
        except OffsetOutOfRangeError as error:
            raise StaleError(
                f"verdicts were deleted before they were read: {error}; this dashboard ends, and goes on with"
                " those that are left when restarted"
            ) from error


class _Consumer(Consumer):
    transport: Any  # a `CommittedTransport`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next: dict[Any, int] = {}
        """Partition -> the offset after the last record fetched."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Go on where the state ends, wherever the group's commit is, with fetching stopped.

        Faust clears the queues of its agents afterwards, and resumes fetching then. Of what would be fetched
        before, some would be skipped.
        """
        self.stop_flow()
        self._next = {tp: self.transport.next_offset(tp.partition) for tp in self.assignment()}
        await self.seek_wait(self._next)

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[Any]:
        """Yield all partitions: nothing is acknowledged."""
        return iter(self.assignment())

    def _new_offset(self, tp: Any) -> int | None:
        """Return the offset to commit, which only lag is measured by: up to where verdicts are counted."""
        offset: int | None = self.transport.counted().get(tp.partition)
        return offset

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:
        """Keep no gaps, which `_new_offset` does not need."""

    def _to_message(self, tp: Any, record: Any) -> Any:
        # Offsets need not be consecutive: control records and aborted records leave gaps.
        record.value.begin, self._next[tp] = self._next[tp], record.offset + 1
        return super()._to_message(tp, record)


class CommittedTransport(Transport):
    """Faust's Kafka transport with the consumer above."""

    Consumer = _Consumer

    def __init__(
        self, app: Any, next_offset: Callable[[int], int], counted: Callable[[], Mapping[int, int]]
    ) -> None:
        """`next_offset` says at which offset to go on with a partition; `counted` returns up to where each
        partition is counted."""
        super().__init__(app.conf.broker_consumer, app)
        self.next_offset, self.counted = next_offset, counted
