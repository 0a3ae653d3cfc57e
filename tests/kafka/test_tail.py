"""`neardup tail` shows each verdict once, also while partitions are added to their topic."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from stream.cli.tail import _follow
from stream.settings import Settings
from tests.kafka.judge_helpers import add_partitions
from tests.kafka.worker_helpers import create
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("from_beginning", [False, True])
async def test_verdicts_on_added_partitions_are_shown_and_none_twice(
    settings: Settings, *, from_beginning: bool
) -> None:
    names = await create(settings)
    shown: list[str] = []

    def show(record: dict[str, Any], _: bytes) -> None:
        shown.append(record["url"])

    async with AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, metadata_max_age_ms=100
    ) as producer:

        async def write(url: str, partition: int) -> None:
            value = json.dumps({"verdict": "unique", "url": url}).encode()
            await producer.send_and_wait(names.verdicts, value, partition=partition)

        await write("before", 0)
        tail = asyncio.create_task(_follow(settings, from_beginning, set(), None, show))
        begun = 0

        async def begins() -> bool:
            nonlocal begun
            await write(f"first {begun}", 1)
            begun += 1
            return bool(shown)

        await until(begins)
        await add_partitions(settings, names.verdicts, 5)
        await until(lambda: producer.client.cluster.partitions_for_topic(names.verdicts) == set(range(5)))
        written = {f"{n} of {partition}" for n in range(20) for partition in range(5)}
        for n in range(20):
            for partition in range(5):
                await write(f"{n} of {partition}", partition)
        await until(lambda: tail.done() or written <= set(shown))
        await write("last", 4)
        await until(lambda: tail.done() or "last" in shown)
        tail.cancel()
        await asyncio.gather(tail, return_exceptions=True)
    assert len(shown) == len(set(shown))
    assert ("before" in shown) == from_beginning
