"""Publishes each judged batch in one transaction: verdicts, cluster changes and the decision record. Between
batches, it publishes ledger records, turns, and what else takes pages from the state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from stream.failpoints import reach
from stream.futures import retrieved
from stream.judge.judged_batch import JudgedBatch
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import BATCH_MARGIN, DECISIONS_BYTES
from stream.kafka.transactional import TransactionalProducer
from stream.kafka.verdict_values import AvroVerdicts
from stream.messages.decision import Decisions, encode_decisions
from stream.messages.verdict import DIGEST_HEADER, Verdict
from stream.roles.judge.verdict_batches import VERDICT_BATCH_BYTES, PartitionBatch, VerdictBatches
from stream.settings import AVRO, Settings


class VerdictPublisher(TransactionalProducer):
    """The producer of a judge, which fences those of earlier ones."""

    def __init__(self, settings: Settings, names: TopicNames, scheme: str) -> None:
        super().__init__(
            settings,
            names.judge,
            names.decisions,
            max_batch_size=VERDICT_BATCH_BYTES,
            max_request_size=DECISIONS_BYTES + BATCH_MARGIN,
        )
        self._names = names
        routes = {
            names.route_topic(each.name.lower()): each
            for each in Verdict
            if each.name.lower() in settings.routes
        }
        self._topics = {names.verdicts: None, **routes}
        self._avro = AvroVerdicts(settings) if settings.verdict_format == AVRO else None
        self._verdicts = VerdictBatches(scheme, self._topics, self._avro)
        self._encode = msgspec.json.Encoder().encode

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        stack.callback(self._verdicts.close)
        if self._avro is not None:  # fail before fencing the previous leader
            await asyncio.to_thread(self._avro.register, list(self._topics))
        await super()._open(stack)
        self._widths = {topic: len(await self._producer.partitions_for(topic)) for topic in self._topics}

    async def encode(self, decided: JudgedBatch) -> list[PartitionBatch]:
        """Encode the verdicts for `publish`, in threads that mostly release the GIL."""
        return await self._verdicts.of(decided, self._widths)

    async def publish(
        self, decided: JudgedBatch, decisions: Decisions, verdicts: Sequence[PartitionBatch]
    ) -> int:
        """Publish a batch atomically. Returns the next offset of the decisions topic.

        On an error the caller must end. The next publisher aborts the transaction if it is still open.
        """
        delivered = await self._commit(partial(self._send, decided, decisions, verdicts), "judge.sent")
        reach("judge.committed")
        return int(delivered[0].offset) + 1

    async def publish_ledger(self, records: Sequence[Decisions]) -> list[int]:
        """Publish the parts of a ledger record atomically. Returns their offsets in the decisions topic.

        On an error the caller must end, as for `publish`.
        """
        delivered = await self._commit(partial(self._send_apart, records), "judge.ledger_sent")
        reach("judge.ledger_committed")
        return [int(each.offset) for each in delivered]

    async def publish_removal(
        self, record: Decisions, clusters: Sequence[str], failpoint: str
    ) -> tuple[int, int]:
        """Publish a record after which the state lacks pages, and remove what the topic `clusters` says of
        their clusters. Returns the record's offset in the decisions topic, and when it was appended there, in
        milliseconds since the epoch.

        On an error the caller must end, as for `publish`.
        """
        written, *_ = await self._commit(partial(self._send_apart, [record], clusters), failpoint)
        return int(written.offset), int(written.timestamp)

    async def _commit(
        self, send: Callable[[], Awaitable[list[asyncio.Future[Any]]]], failpoint: str
    ) -> list[Any]:
        """Send records in a transaction of their own. Returns where each was written."""
        async with self._transaction():
            delivered = await asyncio.gather(*await send())
            reach(failpoint)
        return delivered

    async def _send_apart(
        self, records: Sequence[Decisions], ended: Sequence[str] = ()
    ) -> list[asyncio.Future[Any]]:
        """Send records of no batch, then tombstones for clusters that ended."""
        names, producer = self._names, self._producer
        values = map(encode_decisions, records)
        return [
            *[retrieved(await producer.send(names.decisions, value, partition=0)) for value in values],
            *[
                retrieved(await producer.send(names.clusters, None, key.encode(), partition=0))
                for key in ended
            ],
        ]

    async def _send(
        self, decided: JudgedBatch, decisions: Decisions, verdicts: Sequence[PartitionBatch]
    ) -> list[asyncio.Future[Any]]:
        """Send all records. The future of the decision record is first."""
        names, encode, producer = self._names, self._encode, self._producer
        sent: list[asyncio.Future[Any]] = []

        sent.append(retrieved(await producer.send(names.decisions, encode_decisions(decisions), partition=0)))
        for place, batch in verdicts:
            sent.append(retrieved(await producer.send_batch(batch, place.topic, partition=place.partition)))
        for cluster, digest in decided.cluster_records():
            key, headers = cluster.cluster.encode(), [(DIGEST_HEADER, digest)]
            record = producer.send(names.clusters, encode(cluster), key, partition=0, headers=headers)
            sent.append(retrieved(await record))
        return sent
