"""Faust's Kafka consumer, made fit for counting: committed records only, a batch of them as one message, and
none left out unseen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import FetchResult
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

from stream.kafka.clients import heed_offset_errors

BEFORE: Final = "before"
"""Header that we add: the offset of the record fetched before this one; none after a seek."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in order: the value of a message that stands for a batch."""

    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def clear(self) -> None:
        """Forget them: the message is kept for longer."""
        self.offsets.clear()
        self.values.clear()


@dataclass(frozen=True, slots=True)
class _Whole:
    """The records of a batch in the place of one; it stands at the offset of the last."""

    offset: int
    value: Records
    timestamp: int
    timestamp_type: int
    key: None = None
    checksum: None = None
    headers: tuple[()] = ()


class _Batch:
    """A batch of records whose only record is all of them."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[_Whole]:
        records, last = Records(), None
        for last in self._batch:
            records.offsets.append(last.offset)
            records.values.append(last.value)
        if last is not None:
            yield _Whole(last.offset, records, last.timestamp, last.timestamp_type)


class _Batches:
    """What was fetched, in such batches. aiokafka goes on deciding which of them are committed."""

    def __init__(self, fetched: Any) -> None:
        self.has_next = fetched.has_next
        self._next_batch = fetched.next_batch

    def next_batch(self) -> _Batch | None:
        batch = self._next_batch()
        return None if batch is None else _Batch(batch)


class _Fetched(OrderedDict[Any, Any]):
    """aiokafka's store of what was fetched and not taken yet: changelogs one by one, all else whole."""

    def __init__(self, found: Mapping[Any, Any], one_by_one: Callable[[Any], bool]) -> None:
        self._one_by_one = one_by_one
        super().__init__()
        for partition, result in found.items():
            self[partition] = result

    def __setitem__(self, partition: Any, result: Any) -> None:
        if isinstance(result, FetchResult) and not self._one_by_one(partition):
            records = result._partition_records
            records._records = _Batches(records._records)
        super().__setitem__(partition, result)


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Read when the fetcher starts; Faust sets it for its own transactions only.
        consumer._isolation_level = "read_committed"
        heed_offset_errors(consumer._client)
        return consumer

    async def _fetch_records(self, consumer: AIOKafkaConsumer, *args: Any, **kwargs: Any) -> Any:
        fetcher = consumer._fetcher
        if not isinstance(fetcher._records, _Fetched):
            fetcher._records = _Fetched(fetcher._records, self.consumer._is_changelog_tp)
        return await super()._fetch_records(consumer, *args, **kwargs)


class _Consumer(Consumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fetched: dict[Any, int] = {}

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, with nothing on its way meanwhile.

        Faust clears the queues of its agents afterwards: records that the fetcher put there after the seek
        would be lost, until others behind them are committed, and then for ever. It lets the flow go on
        itself once the queues are cleared.
        """
        self.stop_flow()
        await super().perform_seek()

    async def seek_to_committed(self) -> Any:
        """Seek to the committed offsets; where nothing is committed yet, to the beginning.

        aiokafka leaves the position of such a partition where it is. Records that were fetched during
        recovery, and dropped, would never be read: a dashboard killed before its first commit stood still.
        """
        committed = await super().seek_to_committed()
        # What follows has nothing before it: it may have been read already, or by another dashboard.
        self._fetched.clear()
        never = [tp for tp, offset in committed.items() if not offset and not self._is_changelog_tp(tp)]
        if never:
            await self._thread.seek_to_beginning(*never)
        return committed

    def _to_message(self, tp: Any, record: Any) -> Any:
        message = super()._to_message(tp, record)
        before = self._fetched.get(tp, -1)
        self._fetched[tp] = record.offset
        # Not the difference of offsets: control records and aborted ones leave gaps that are none.
        message.headers = {BEFORE: str(before).encode()} if 0 <= before < record.offset else {}
        return message


class CommittedTransport(Transport):
    """Kafka, read committed."""

    Consumer = _Consumer


def hole(message: Any, last: int | None) -> bool:
    """Whether records between the `last` one given and this one were fetched, but not given."""
    before = message.headers.get(BEFORE)
    return before is not None and int(before) != last
