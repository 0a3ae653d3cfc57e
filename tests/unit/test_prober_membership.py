"""What a prober takes for its own, where assignments come during polls, and what was read is read again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaTimeoutError

from stream.errors import RecordError, StaleError, StateError
from stream.fingerprint.scheme import Scheme
from stream.kafka import outage
from stream.messages.segments import SegmentRecord, encode_segment
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.membership import Membership
from stream.settings import load
from tests.genesis import genesis_of

GENESIS = genesis_of(Scheme(), VerdictOptions())
SIZE = 16


@dataclass
class Record:
    key: bytes | None
    value: bytes | None
    offset: int


@dataclass
class Consumer:
    """A consumer of a topic that is a dict. Each poll returns all that is new."""

    member: Membership
    log: dict[TopicPartition, list[Record]] = field(default_factory=lambda: defaultdict(list))
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    next: list[int] | None = None
    """Partitions that the group assigns during the next poll."""
    away: int = 0
    """How often brokers do not answer yet."""

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        if self.next is not None:
            await self.assign(*self.next)
            self.next = None
        found = {key: self.log[key][at:] for key, at in self.positions.items()}
        self.positions = {key: len(self.log[key]) for key in self.positions}
        return {key: records for key, records in found.items() if records}

    async def assign(self, *partitions: int) -> None:
        keys = [TopicPartition("t.segments", each) for each in partitions]
        await self.member.on_partitions_revoked(list(self.positions))
        self.positions = dict.fromkeys(keys, 0)
        await self.member.on_partitions_assigned(keys)

    async def end_offsets(self, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self.away:
            self.away -= 1
            raise KafkaTimeoutError
        return {key: len(self.log[key]) for key in keys}

    async def position(self, key: TopicPartition) -> int:
        if key not in self.positions:
            raise IllegalStateError(key)
        return self.positions[key]

    def announce(
        self, record: SegmentRecord, value: bytes | None = b"", partition: int | None = None
    ) -> None:
        """Append a record; with the value None, one that says that the segment has expired."""
        key = TopicPartition("t.segments", record.partition if partition is None else partition)
        content = encode_segment(record) if value is not None else None
        self.log[key].append(Record(record.key, content, len(self.log[key])))


def segment(number: int, **changes: Any) -> SegmentRecord:
    fields = {
        "journal": GENESIS.journal,
        "scheme": GENESIS.scheme_id,
        "first": number * SIZE,
        "end": (number + 1) * SIZE,
        "oldest": number * SIZE,
        "digest": f"{number:064x}",
        "size": 1,
        "dead": "0" * 64,
        "dead_size": 0,
        "decided": 1,
        "exported_at": "2026-11-26T00:00:00Z",
    }
    return SegmentRecord(**fields | changes)


@pytest.fixture
def consumer() -> Consumer:
    member = Membership(load(namespace="t"), GENESIS, "t.probers", "an-id", "a-holder")
    member._consumer = Consumer(member)
    return member._consumer


async def polled(consumer: Consumer) -> list[int]:
    """The numbers of the segments once nothing changes any more."""
    known = False
    while await consumer.member.poll() or not known:
        known = consumer.member.is_known
    return [each.first // SIZE for each in consumer.member.segments]


async def test_nothing_is_known_before_all_is_read(consumer: Consumer) -> None:
    member = consumer.member
    assert not await member.poll()
    assert not member.is_known
    consumer.announce(segment(0))
    consumer.announce(segment(3))
    await consumer.assign(segment(0).partition, segment(3).partition)
    assert await polled(consumer) == [0, 3]
    await consumer.assign()
    assert await polled(consumer) == []
    assert member.rebalances == 2


async def test_an_outage_after_an_assignment_is_waited_for(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "PAUSE_SECONDS", 0)
    consumer.announce(segment(0))
    consumer.away = 3
    await consumer.assign(segment(0).partition)
    assert await polled(consumer) == [0]
    assert consumer.away == 0


async def test_an_assignment_during_a_poll_loses_nothing(consumer: Consumer) -> None:
    for number in range(4):
        consumer.announce(segment(number))
    await consumer.assign(segment(0).partition)
    assert await polled(consumer) == [0]
    consumer.next = [segment(number).partition for number in (0, 1, 3)]
    assert await polled(consumer) == [0, 1, 3]
    consumer.next = [segment(2).partition]
    assert await polled(consumer) == [2]
    consumer.next = [segment(number).partition for number in range(4)]
    assert await polled(consumer) == [0, 1, 2, 3]


async def test_what_is_read_again_is_no_news(consumer: Consumer) -> None:
    own = segment(0).partition, segment(1).partition
    consumer.announce(segment(0))
    consumer.announce(segment(1))
    consumer.announce(segment(1), None)
    consumer.announce(segment(0, decided=2))
    await consumer.assign(*own)
    assert await polled(consumer) == [0]
    await consumer.assign(*own)
    for _ in range(3):
        assert not await consumer.member.poll()
    assert [each.decided for each in consumer.member.segments] == [2]
    consumer.announce(segment(0, decided=3))
    assert await consumer.member.poll()
    assert [each.decided for each in consumer.member.segments] == [3]


async def test_a_topic_that_is_made_anew_is_read_anew(consumer: Consumer) -> None:
    own = segment(0).partition, segment(1).partition
    for decided in range(3):
        consumer.announce(segment(0, decided=decided))
    consumer.announce(segment(1))
    await consumer.assign(*own)
    assert await polled(consumer) == [0, 1]
    consumer.log.clear()
    await consumer.assign(*own)
    assert await polled(consumer) == []
    consumer.announce(segment(0, decided=7))
    assert await polled(consumer) == [0]
    # Without a rebalance, the group's consumer goes on at the beginning.
    consumer.announce(segment(0, decided=8))
    assert await polled(consumer) == [0]
    consumer.log.clear()
    consumer.positions = dict.fromkeys(consumer.positions, 0)
    consumer.announce(segment(0, decided=9))
    with pytest.raises(
        StaleError, match=r"partition 0 offset 0: comes after offset 1: the topic was made anew"
    ):
        await consumer.member.poll()


@pytest.mark.parametrize(
    ("changes", "partition", "why"),
    [
        ({"journal": "fe" * 16}, 0, f"is of journal {'fe' * 16}, not"),
        ({"scheme": "cd" * 8}, 0, "is of scheme cdcdcdcdcdcdcdcd, not"),
        ({}, 5, r"anchors \[0, 16\) belong in partition 0"),
    ],
)
async def test_segments_of_others_are_refused_until_they_are_replaced(
    consumer: Consumer, changes: dict[str, Any], partition: int, why: str
) -> None:
    consumer.announce(segment(0, **changes), partition=partition)
    await consumer.assign(partition)
    while await consumer.member.poll():
        pass
    with pytest.raises(StateError, match=rf"^topic t.segments partition {partition} offset 0: {why}"):
        consumer.member.segments  # noqa: B018
    consumer.announce(segment(0), None, partition=partition)
    assert await polled(consumer) == []


async def test_what_is_no_announcement_is_refused(consumer: Consumer) -> None:
    key = TopicPartition("t.segments", 0)
    consumer.log[key].append(Record(b"0", b"{", 0))
    await consumer.assign(0)
    with pytest.raises(RecordError, match=r"topic t\.segments partition 0 offset 0"):
        await polled(consumer)
