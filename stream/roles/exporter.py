"""Incremental export of committed verdicts from the topic to a sink, each exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from aiokafka import TopicPartition

from stream.errors import RecordError, TopicError
from stream.judge.batch import BATCH_BYTES
from stream.kafka import broker_metadata, clients
from stream.kafka.names import TopicNames
from stream.kafka.reader import RECORDS_AT_ONCE
from stream.kafka.verdict_values import VerdictReader
from stream.messages.verdict import VerdictRecord
from stream.settings import Settings
from stream.sinks.base import Sink

ROWS: Final = 10_000
"""Maximum number of verdicts per transaction of the target; they have at most BATCH_BYTES or a poll more."""
POLL_MS: Final = 500


@clients.with_translated_errors
async def check_topic(settings: Settings) -> None:
    """Check that a broker answers and has the topic of verdicts. Raises BrokerError and TopicError."""
    async with broker_metadata.connect(settings) as client:
        await broker_metadata.topic_id(client, TopicNames(settings.namespace).verdicts)


@clients.with_translated_errors
async def export(settings: Settings, sink: Sink, progress: Callable[[int], None] | None = None) -> int:
    """Append the verdicts that the sink does not have yet, up to the current end, but for those that an open
    transaction hides. Returns their number.

    The sink stores offsets in the same transaction as the rows, so a crash neither duplicates nor loses any.
    Verdicts that retention deletes meanwhile are skipped. `progress` is called with the number of rows
    committed so far. Raises TopicError if the topic is recreated meanwhile.
    """
    topic, exported = TopicNames(settings.namespace).verdicts, 0
    consumer = clients.reader(settings, auto_offset_reset="earliest")
    async with broker_metadata.connect(settings) as client, clients.open_client(settings, consumer):
        topic_id = await broker_metadata.topic_id(client, topic)
        bounds = await broker_metadata.log_bounds(client, [topic])
        starts = sink.offsets(topic_id)
        ends = {key.partition: bound.stable for key, bound in bounds.items()}
        at = {key.partition: max(starts.get(key.partition, 0), bound.start) for key, bound in bounds.items()}
        behind = [TopicPartition(topic, partition) for partition in at if at[partition] < ends[partition]]
        if not behind:
            return 0
        consumer.assign(behind)
        for key in behind:
            consumer.seek(key, at[key.partition])
        decode, reader = msgspec.json.Decoder(VerdictRecord).decode, VerdictReader(settings)
        while behind:
            rows: list[VerdictRecord] = []
            size, moved = 0, at
            while len(rows) < ROWS and size < BATCH_BYTES:
                fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE)
                for key, records in fetched.items():
                    for record in records:
                        if record.offset >= ends[key.partition]:
                            break
                        size += len(record.value)
                        try:
                            rows.append(decode(reader.json(record)))
                        except (msgspec.DecodeError, UnicodeDecodeError) as error:
                            where = f"{topic}[{key.partition}] offset {record.offset}"
                            raise RecordError(f"{where}: no verdict: {error}") from error
                moved = {key.partition: await consumer.position(key) for key in behind}
                if not fetched or all(place >= ends[partition] for partition, place in moved.items()):
                    break
            if await broker_metadata.topic_id_at_leaders(client, consumer, topic, moved) != topic_id:
                raise TopicError(f"topic {topic} was recreated while it was read: export it again")
            at |= {partition: min(place, ends[partition]) for partition, place in moved.items()}
            sink.append(rows, topic_id, {partition: at[partition] for partition in moved})
            exported += len(rows)
            if progress:
                progress(exported)
            done = [key for key in behind if at[key.partition] >= ends[key.partition]]
            if done:
                consumer.pause(*done)
                behind = [key for key in behind if key not in done]
        return exported
