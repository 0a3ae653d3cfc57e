"""Finds the judge's position in source partitions, for workers whose group has no commit (rule 4) and for
loaders (rule 21)."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from stream.errors import StateError
from stream.judge.state.ledger import SourceKey, key_of
from stream.kafka.ledger_search import records_between, windows_before
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import settled_bounds
from stream.kafka.reader import TopicReader
from stream.settings import Settings


async def expected_offsets(
    settings: Settings, client: AIOKafkaClient, wanted: Collection[SourceKey]
) -> dict[SourceKey, int]:
    """Return source -> the next offset that the judge expects, for the sources that the decisions mention.

    The judge may lag behind the journal; pages that are then read again are dropped as redelivered. Waits
    while brokers are unreachable, or an open transaction hides decisions. Raises TopicError if the decisions
    topic is missing, and StateError as `last_expected` does.
    """
    if not wanted:
        return {}
    topic = TopicNames(settings.namespace).decisions
    bounds = (await settled_bounds(client, [topic]))[TopicPartition(topic, 0)]
    if not bounds.end:
        return {}
    async with TopicReader(settings, topic, bounds.end) as decisions:
        return await last_expected(decisions, wanted)


async def last_expected(decisions: TopicReader, wanted: Collection[SourceKey]) -> dict[SourceKey, int]:
    """Return what `expected_offsets` does, from given records, which are read backwards as far as needed.

    A decision names the sources that it advanced, so active sources are found soon. A ledger record names
    all, so nothing before the newest one is read. Raises StateError if older records were deleted, and no
    ledger record is left.
    """
    bounds = await decisions.settled_bounds()
    missing, offsets = set(wanted), dict[SourceKey, int]()
    for first, until in windows_before(bounds.start, bounds.end):
        try:
            expected, has_ledger = await _expected_within(decisions, first, until)
        except StateError:
            if (await decisions.settled_bounds()).start <= first:
                raise
            return await last_expected(decisions, wanted)  # older records were deleted meanwhile
        offsets |= {key: offset for key, offset in expected.items() if key in missing}
        missing -= expected.keys()
        if has_ledger or not missing:
            return offsets
    if missing and bounds.start:
        raise StateError(
            f"topic {decisions.topic}: begins at offset {bounds.start} and has no ledger record, so it does "
            f"not say how far {'/'.join(map(str, min(missing)))} was judged: records that are needed were "
            "deleted"
        )
    return offsets


async def _expected_within(decisions: TopicReader, first: int, end: int) -> tuple[dict[SourceKey, int], bool]:
    """Return source -> the next offset that the judge expects, by the last record in [first, end) that names
    it; and whether a ledger begins there."""
    expected, has_ledger = dict[SourceKey, int](), False
    async for _, decided in records_between(decisions, first, end):
        expected |= {key_of(each): each.expected for each in decided.sources}
        has_ledger |= decided.begins_ledger
    return expected, has_ledger
