"""A subscription reads the partitions that are used, and misses nothing in those that begin to be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream.kafka import clients
from stream.kafka.topic_subscription import TopicSubscription
from stream.settings import load

PARTITIONS = 64


class Consumer:
    """A consumer of a topic in memory. What is not assigned is not returned."""

    def __init__(self, logs: dict[int, list[bytes]]) -> None:
        self.assigned, self._logs = set[TopicPartition](), logs
        self._positions: dict[TopicPartition, int] = {}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.assigned)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned, self._positions = set(partitions), dict.fromkeys(partitions, 0)

    def seek(self, key: TopicPartition, offset: int) -> None:
        self._positions[key] = offset

    async def getmany(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        found = {}
        for key, position in self._positions.items():
            if len(log := self._logs.get(key.partition, [])) > position:
                found[key] = [SimpleNamespace(offset=position, value=log[position])]
                self._positions[key] = position + 1
        return found


async def test_only_used_partitions_are_read_and_each_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs: dict[int, list[bytes]] = {3: [b"before", b"a"], 5: [b"before", b"b", b"c"]}
    used, taken = set[int](), list[bytes]()
    consumer = Consumer(logs)
    monkeypatch.setattr(clients, "reader", lambda *_, **options: consumer)
    subscription = TopicSubscription(load(), "candidates", used=lambda: used)
    subscription._positions = {TopicPartition("candidates", each): 1 for each in (3, 5)}
    records = aiter(subscription)

    async def take(count: int) -> None:
        for _ in range(count):
            taken.append((await anext(records)).value)

    used.add(3)
    await take(1)
    assert taken == [b"a"]
    assert consumer.assigned == {TopicPartition("candidates", 3)}
    used.add(5)
    logs[3].append(b"d")
    await take(3)
    assert sorted(taken[1:]) == [b"b", b"c", b"d"]
    used.remove(3)
    logs[5].append(b"e")
    await take(1)
    assert consumer.assigned == {TopicPartition("candidates", 5)}
    logs[3].append(b"f")
    used.add(3)
    await take(1)
    assert taken[4:] == [b"e", b"f"]


async def test_all_partitions_are_read_while_none_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {each: [b"%d" % each] for each in (0, PARTITIONS - 1)}
    consumer = Consumer(logs)
    monkeypatch.setattr(clients, "reader", lambda *_, **options: consumer)
    subscription = TopicSubscription(load(), "candidates")
    records = aiter(subscription)
    assert {(await anext(records)).value for _ in range(2)} == {b"0", b"63"}
    assert len(consumer.assigned) == PARTITIONS
