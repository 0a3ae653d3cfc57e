"""Finds the judge's position in source partitions, for workers whose group has no commit (rule 4) and for
loaders (rule 21)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from stream.judge.ledger import SourceKey, key_of
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.reader import RecordReader, TopicReader
from stream.messages.decision import decode_decisions
from stream.settings import Settings

FIRST_WINDOW: Final = 64
"""Number of decision records in the first window, read from the end. Each earlier window is twice as
large."""


async def expected_offsets(
    settings: Settings, client: AIOKafkaClient, wanted: Collection[SourceKey]
) -> dict[SourceKey, int]:
    """Return source -> the next offset that the judge expects, for the sources that the decisions mention.

    The judge may lag behind the journal; pages that are then read again are dropped as redelivered. Waits
    while brokers are unreachable. Raises TopicError if the decisions topic is missing.
    """
    if not wanted:
        return {}
    topic = TopicNames(settings.namespace).decisions

    async def ask() -> broker_metadata.LogBounds:
        return (await broker_metadata.log_bounds(client, [topic], committed=True))[TopicPartition(topic, 0)]

    bounds = await retry_until_answered(f"topic {topic}", ask)
    if bounds.start == bounds.end:
        return {}
    async with TopicReader(settings, topic, bounds.end) as decisions:
        return await last_expected(decisions, wanted)


async def last_expected(decisions: RecordReader, wanted: Collection[SourceKey]) -> dict[SourceKey, int]:
    """Return what `expected_offsets` does, from given records, which are read backwards as far as needed.

    A decision names the sources that it advanced, so active sources are found soon. Only for an unknown
    source, all records are read, each once.
    """
    start, end = await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
    missing, offsets, window = set(wanted), dict[SourceKey, int](), FIRST_WINDOW
    while missing and start < end:
        first = max(start, end - window)
        here = await _expected_within(decisions, first, end)
        offsets |= {key: expected for key, expected in here.items() if key in missing}
        missing -= here.keys()
        end, window = first, 2 * window
    return offsets


async def _expected_within(decisions: RecordReader, first: int, end: int) -> dict[SourceKey, int]:
    """Return the expected offsets from the records in [first, end). The last one of a source counts."""
    decisions.seek(first)
    expected: dict[SourceKey, int] = {}
    while decisions.position < end:
        before = decisions.position
        for record in await decisions.poll():
            if record.offset < end:
                sources = decode_decisions(record.value, record.offset).sources
                expected |= {key_of(each): each.expected for each in sources}
        if decisions.position == before:  # waits and logs if the leader is unreachable
            await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
    return expected
