"""The last answers of probers, of which a dashboard reads some: all would be as much as a judge reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream.errors import RecordError
from stream.judge.segments.answer import Segment
from stream.judge.segments.answer_records import decode_heading
from stream.kafka import broker_metadata
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.names import record_name

MOST_GROUPS: Final = 16
"""Maximum number of groups of which answers are kept."""
MOST_RECORDS: Final = 32
"""Records that are read of a partition at a time, at most."""
MOST_BYTES: Final = 16 << 20
"""Bytes after which a look ends; the next one begins with other partitions."""
AT_ONCE: Final = 8
"""Partitions that are read together, each of which may have some MiB on the way."""
POLL_MS: Final = 200


class LastAnswer(NamedTuple):
    """The last answer for a segment that was seen."""

    holder: str
    """Client id of who sent it."""
    digest: bytes
    """The beginning of the digest of the file that it holds."""
    end: int
    """The journal record before which it ends."""
    at: float
    """When it was sent, in seconds since the epoch."""


class LastAnswers:
    """The last answer that was seen, of each group for each segment."""

    def __init__(self, topic: str, journal: str) -> None:
        self._topic, self._journal = topic, journal
        self._answers: dict[str, dict[Segment, LastAnswer]] = {}
        self._read: dict[TopicPartition, int] = {}
        """Partition -> where it ended when it was last looked at."""
        self._turn = 0

    def of(self, group: str, segment: Segment) -> LastAnswer | None:
        """Return the last answer of a group for a segment, if one was seen."""
        return self._answers.get(group, {}).get(segment)

    def groups(self, since: float) -> list[str]:
        """Return the groups that have answered since then."""
        return [
            group
            for group, answers in self._answers.items()
            if max((each.at for each in answers.values()), default=0.0) >= since
        ]

    async def look(self, consumer: AIOKafkaConsumer, segments: Iterable[tuple[int, Segment]]) -> None:
        """Read the last records of partitions that have new ones: for each of their segments, which come with
        their partitions, one of each group if these take turns."""
        wanted = self._wanted(segments)
        bounds = await broker_metadata.log_bounds(client_of(consumer), [self._topic], committed=True)
        news = {key: bound for key, bound in bounds.items() if key.partition in wanted}
        news = {key: bound for key, bound in news.items() if bound.end > self._read.get(key, bound.start)}
        turns, size = sorted(news, key=lambda key: (key.partition - self._turn) % len(bounds)), 0
        for first in range(0, len(turns), AT_ONCE):
            if size > MOST_BYTES:
                break
            some = turns[first : first + AT_ONCE]
            consumer.assign(some)
            for key in some:
                bound = news[key]
                consumer.seek(
                    key, max(bound.start, self._read.get(key, 0), bound.end - wanted[key.partition])
                )
            size += await self._read_to_ends(consumer, {key: news[key].end for key in some})
            self._turn = some[-1].partition + 1

    def _wanted(self, segments: Iterable[tuple[int, Segment]]) -> Mapping[int, int]:
        """How many records to read of each partition. Answers for others than these segments are dropped."""
        announced, wanted = set[Segment](), dict[int, int]()
        for partition, segment in segments:
            announced.add(segment)
            wanted[partition] = wanted.get(partition, 0) + max(1, len(self._answers))
        for group, answers in self._answers.items():
            self._answers[group] = {
                segment: answer for segment, answer in answers.items() if segment in announced
            }
        return {partition: min(records, MOST_RECORDS) for partition, records in wanted.items()}

    async def _read_to_ends(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> int:
        """Read the assigned partitions to these ends, and return how many bytes that were."""
        size, waiting = 0, set(ends)
        while waiting:
            for records in (await consumer.getmany(*waiting, timeout_ms=POLL_MS)).values():
                for record in records:
                    size += len(record.value or b"")
                    self._note(record)
            for key in list(waiting):
                if await consumer.position(key) >= ends[key]:
                    waiting.remove(key)
                    self._read[key] = ends[key]
        return size

    def _note(self, record: ConsumerRecord) -> None:
        try:
            heading = decode_heading(record.value, record_name(record))
        except RecordError:  # a judge refuses it and says so
            return
        is_known = heading.group in self._answers or len(self._answers) < MOST_GROUPS
        if heading.journal == self._journal and is_known:
            self._answers.setdefault(heading.group, {})[heading.segment] = LastAnswer(
                heading.holder, heading.digest, heading.run.end, min(record.timestamp / 1000, time.time())
            )
