"""The topic of kept pages: writes to it in transactions, and reads what an earlier process wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any, Final

from aiokafka.errors import OffsetOutOfRangeError

from stream.elector.elector import Due, TopicRecord
from stream.elector.layout import NOBODY
from stream.errors import RecordError, StateError
from stream.futures import retrieved
from stream.kafka import clients
from stream.kafka.names import TopicNames, record_name
from stream.kafka.open_transactions import bounds_soon, settled_bounds
from stream.kafka.outage import retry_until_answered
from stream.kafka.topic_plan import VERDICTS_BYTES
from stream.kafka.transactional import TransactionalProducer
from stream.messages.best import ELECT_HEADER, WAS_HEADER, decode_best, encode_best
from stream.messages.verdict import DIGEST_HEADER
from stream.settings import Settings

POLL_MS: Final = 500
READ_AT_ONCE: Final = 4096
NOWHERE: Final[Mapping[int, Set[int]]] = {}


class BestTopic(TransactionalProducer):
    """The producer of an elector, with a reader of its topic. As it fences those of earlier ones, the end of
    the topic is final."""

    def __init__(self, settings: Settings) -> None:
        names = TopicNames(settings.namespace)
        self.name: Final = names.best(settings.elector_name)
        super().__init__(
            settings,
            names.elector(settings.elector_name),
            self.name,
            max_batch_size=VERDICTS_BYTES // 2,
            max_request_size=VERDICTS_BYTES,
        )
        self._elect = settings.elect.encode()

    async def write(
        self, due: Sequence[Due], positions: Mapping[int, int], also_in: Mapping[int, Set[int]] = NOWHERE
    ) -> dict[int, int]:
        """Write records in one transaction. Returns partition -> the offset after its last one. `positions`:
        partition -> the offset before which the state knows all records. `also_in`: cluster -> partitions
        that have a record of it that is to be replaced, as the topic had fewer partitions then.

        On an error the caller must end. The next writer aborts the transaction if it is still open. Raises
        StateError, and commits nothing, if a partition has lost records that the state knows.
        """
        async with self._transaction():
            delivered = await asyncio.gather(*[await self._send(each) for each in due])
            former = [
                await self._send(each, partition)
                for each, place in zip(due, delivered, strict=True)
                for partition in sorted(also_in.get(each.cluster, set()) - {place.partition})
            ]
            delivered += await asyncio.gather(*former)
            for each in delivered:
                self._refuse_loss(each.partition, each.offset, positions)
        after: dict[int, int] = {}
        for each in delivered:
            after[each.partition] = max(after.get(each.partition, 0), each.offset + 1)
        return after

    async def _send(self, due: Due, partition: int | None = None) -> asyncio.Future[Any]:
        headers = [(ELECT_HEADER, self._elect)]
        for name, digest in ((DIGEST_HEADER, due.digest), (WAS_HEADER, due.was)):
            if digest != NOBODY:
                headers.append((name, digest))
        key, value = due.record.cluster.encode(), encode_best(due.record)
        sent = await self._producer.send(self.name, value, key=key, partition=partition, headers=headers)
        return retrieved(sent)

    async def refuse_other_policy(self) -> None:
        """Raise StateError if the topic has records by another policy. For before the entry, which ends the
        elector that writes them."""
        async with aclosing(self.records_from({}, settled=False)) as batches:
            async for _ in batches:
                return

    async def records_from(
        self, positions: Mapping[int, int], *, settled: bool = True
    ) -> AsyncGenerator[tuple[list[TopicRecord], dict[int, int]], None]:
        """Yield the records from these positions on, partition by partition, with the positions after them.

        Waits while an open transaction hides some, or leaves these out unless `settled`. Raises StateError
        for records by another policy, and if the topic ends before a position; RecordError for what is no
        record of this topic.
        """
        async with clients.open_client(
            self._settings, clients.client(self._settings), patiently=True
        ) as client:
            if settled:
                bounds = await settled_bounds(client, [self.name])
            else:
                bounds = await retry_until_answered(
                    f"topic {self.name}", lambda: bounds_soon(client, [self.name])
                )
        consumer = clients.reader(self._settings, auto_offset_reset="none")
        async with clients.open_client(self._settings, consumer, patiently=True):
            for partition in positions.keys() - {key.partition for key in bounds}:
                self._refuse_loss(partition, 0, positions)
            consumer.assign(list(bounds))
            for key, at in bounds.items():
                self._refuse_loss(key.partition, at.end, positions)
                consumer.seek(key, max(at.start, positions.get(key.partition, 0)))
            while waiting := [key for key, at in bounds.items() if await consumer.position(key) < at.stable]:
                try:
                    fetched = await consumer.getmany(*waiting, timeout_ms=POLL_MS, max_records=READ_AT_ONCE)
                except OffsetOutOfRangeError as error:
                    raise StateError(f"topic {self.name}: records were deleted while it was read") from error
                for partition, records in fetched.items():
                    decoded = [self._decode(each) for each in records]
                    yield decoded, {partition.partition: await consumer.position(partition)}

    def _refuse_loss(self, partition: int, end: int, positions: Mapping[int, int]) -> None:
        """Raise StateError if a partition ends before records that the state knows."""
        if end < positions.get(partition, 0):
            raise StateError(
                f"topic {self.name} partition {partition}: ends at {end}, but the state knows records up to"
                f" {positions[partition]}: the topic was recreated, or lost records. Put them back, or delete"
                " the state directory: the elector then begins with the first decisions, and tells everything"
                " again. Where journal or decisions were trimmed, it cannot: there, only a copy of the topic"
                " helps, or another namespace"
            )

    def _decode(self, record: Any) -> TopicRecord:
        where = record_name(record)
        if record.value is None:
            raise RecordError(f"{where}: a tombstone; records of this topic are replaced, never deleted")
        headers = dict(record.headers)
        elect = headers.get(ELECT_HEADER)
        if elect != self._elect:
            by = "no policy" if elect is None else f"elect={elect.decode(errors='replace')}"
            raise StateError(
                f"{where}: has {by}, but the setting is elect={self._settings.elect}; give this elector an"
                " elector_name, and so a topic of its own, or keep the policy"
            )
        best = decode_best(record.value, where)
        digest, was = (headers.get(name, NOBODY) for name in (DIGEST_HEADER, WAS_HEADER))
        for name, value, page in ((DIGEST_HEADER, digest, best.best), (WAS_HEADER, was, best.was)):
            if len(value) != len(NOBODY) or (value == NOBODY) != (page is None):
                raise RecordError(f"{where}: its header {name} does not fit")
        return TopicRecord(best, digest, was, where)
