"""The lag of a consumer group: of each partition, and of its topic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream.kafka.broker_metadata import LogBounds

OLDEST_SECONDS: Final = 1.0
"""Time-out for reading the oldest unread records."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """What a group has not read of a partition."""

    partition: int
    records: int
    seconds: float | None
    """Age of the oldest unread record; None if it could not be read in time."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What a group has not read of a topic."""

    partitions: tuple[PartitionLag, ...]
    """The partitions that have unread records, furthest behind first."""

    @property
    def records(self) -> int:
        """Unread records of all partitions."""
        return sum(each.records for each in self.partitions)

    @property
    def seconds(self) -> float | None:
        """Age of the oldest unread record, 0 without any; None if that of some partition is unknown."""
        ages = [each.seconds for each in self.partitions if each.seconds is not None]
        return max(ages, default=0.0) if len(ages) == len(self.partitions) else None


def furthest_behind(each: PartitionLag) -> tuple[float, int, int]:
    """Sort key: the oldest unread record first. A partition of unknown age was not answered for, so it comes
    before all others."""
    return (-float("inf") if each.seconds is None else -each.seconds, -each.records, each.partition)


async def measure_lag(
    consumer: AIOKafkaConsumer,
    topic: str,
    bounds: dict[TopicPartition, LogBounds],
    committed: dict[TopicPartition, int],
) -> TopicLag:
    """Measure what is not read of a topic, by the first unread record of each partition.

    Stable offsets include control records, which consumers do not see. If only those follow, there is no lag.
    """
    behind = {
        key: (max(committed.get(key, bound.start), bound.start), bound.stable)
        for key, bound in bounds.items()
        if key.topic == topic and committed.get(key, bound.start) < bound.stable
    }
    if not behind:
        return TopicLag(())
    consumer.assign(list(behind))
    for key, (start, _) in behind.items():
        consumer.seek(key, start)
    lags, unknown = [], set(behind)
    deadline = time.monotonic() + OLDEST_SECONDS
    while unknown and time.monotonic() < deadline:
        # Only the first record of each partition is needed.
        for key, (first, *_) in (await consumer.getmany(*unknown, timeout_ms=100, max_records=1)).items():
            age = max(0.0, time.time() - first.timestamp / 1000)
            lags.append(PartitionLag(key.partition, behind[key][1] - first.offset, age))
            unknown.discard(key)
        unknown -= {key for key in unknown if await consumer.position(key) >= behind[key][1]}
    lags += [PartitionLag(key.partition, behind[key][1] - behind[key][0], None) for key in unknown]
    return TopicLag(tuple(sorted(lags, key=furthest_behind)))
