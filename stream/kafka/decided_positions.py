"""Finds the judge's position in source partitions, for workers whose group has no commit (rule 4) and for
loaders (rule 21)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from typing import Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from stream.judge.ledger import SourceKey, key_of
from stream.kafka import broker_metadata
from stream.kafka.names import TopicNames
from stream.kafka.outage import until_answered
from stream.kafka.reader import RecordReader, TopicReader
from stream.messages.decision import SourceProgress, decode_decisions
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

    bounds = await until_answered(f"topic {topic}", ask)
    if bounds.start == bounds.end:
        return {}
    async with TopicReader(settings, topic, bounds.end) as decisions:
        return await last_expected(decisions, wanted)


async def last_expected(decisions: RecordReader, wanted: Collection[SourceKey]) -> dict[SourceKey, int]:
    """Like `expected_offsets`, for given records, which are read backwards as far as needed.

    A decision names the sources that it advanced, so active sources are found soon. Only for an unknown
    source, all records are read, each once.
    """
    left, found = set(wanted), dict[SourceKey, int]()
    async with aclosing(_backwards(decisions)) as windows:
        while left and (progress := await anext(windows, None)) is not None:
            found |= {key: each.expected for key, each in progress.items() if key in left}
            left -= progress.keys()
    return found


async def judged_rows(decisions: RecordReader, digest: str) -> int:
    """Return how many rows of a corpus are judged, which are loaded in order (rule 21)."""
    async with aclosing(_backwards(decisions)) as windows:
        async for progress in windows:
            if judged := rows_judged(progress.values(), digest):
                return judged
    return 0


def rows_judged(progress: Iterable[SourceProgress], digest: str) -> int:
    """Return up to which row these decisions judged a corpus, or 0 if none is about it."""
    return max((each.expected for each in progress if each.topic_id == digest), default=0)


async def _backwards(decisions: RecordReader) -> AsyncGenerator[dict[SourceKey, SourceProgress], None]:
    """Yield the last progress of each source within windows of records, the last window first."""
    start, end = await until_answered(f"topic {decisions.topic}", decisions.bounds)
    window = FIRST_WINDOW
    while start < end:
        first = max(start, end - window)
        yield await _progress_within(decisions, first, end)
        end, window = first, 2 * window


async def _progress_within(decisions: RecordReader, first: int, end: int) -> dict[SourceKey, SourceProgress]:
    """Return the last progress of each source that the records in [first, end) tell."""
    decisions.seek(first)
    found: dict[SourceKey, SourceProgress] = {}
    while decisions.position < end:
        before = decisions.position
        for record in await decisions.poll():
            if record.offset < end:
                sources = decode_decisions(record.value, record.offset).sources
                found |= {key_of(each): each for each in sources}
        if decisions.position == before:  # waits and logs if the leader is unreachable
            await until_answered(f"topic {decisions.topic}", decisions.bounds)
    return found
