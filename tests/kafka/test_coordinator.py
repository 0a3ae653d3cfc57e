"""Coordinators that move or still load their groups, and brokers that are silent for a while."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from stream.kafka import clients
from stream.settings import Settings
from tests.kafka.proxy import OFFSET_FETCH, Proxy, Request
from tests.kafka.worker_helpers import (
    commit,
    committed,
    create,
    journal,
    publish,
    until,
    working,
)

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("children_find_the_tests")]
LOADING, NOT_COORDINATOR = 14, 16


def through(settings: Settings, proxy: Proxy) -> Settings:
    return settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers})


def refuse_offsets(proxy: Proxy, *codes: int) -> None:
    """Answer the next questions for committed offsets with these errors, as a coordinator that moved does."""
    left = list(codes)

    def answer(request: Request) -> bytes | None:
        if request.api != OFFSET_FETCH or not left:
            return None
        assert request.version == 3, "the answer below is of version 3"
        throttle_ms, topics = 0, 0
        return struct.pack(">iih", throttle_ms, topics, left.pop(0))

    proxy.answer = answer


async def test_rule_4_coordinator_that_moved_is_not_a_group_without_commits(
    settings: Settings, proxy: Proxy
) -> None:
    await create(settings)
    await publish(settings, [b"page %d" % n for n in range(20)])
    async with working(settings) as worker:
        await until(lambda: worker.stats.pages == 20)
    assert (await committed(settings))[0][0] == 20
    before = len(await journal(settings))
    # aiokafka asks too, to find positions by itself: enough for both.
    refuse_offsets(proxy, *(refused := [NOT_COORDINATOR, LOADING] * 8))
    with capture_logs() as logged:
        async with working(through(settings, proxy)) as worker:
            await until(lambda: worker.opened is not None)
            await publish(settings, [b"one more"])
            await until(lambda: worker.stats.pages > 0)
    assert len(proxy.seen) == len(refused)
    assert not [each for each in logged if each["event"] == "partition_opened"]
    ranges = [each for rows in (await journal(settings))[before:] for each in rows.ranges]
    assert [(each.start, each.end, each.opening) for each in ranges if each.partition == 0] == [
        (20, 21, False)
    ]


@pytest.mark.night
@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
async def test_offsets_refused_at_the_top_of_the_answer_are_asked_for_again(
    settings: Settings, proxy: Proxy, code: int
) -> None:
    """This holds for all consumers, e.g. when a judge reads the previous leader's offset, and for
    positions."""
    names = await create(settings)
    key = TopicPartition(names.pages, 0)
    await publish(settings, [b"page %d" % n for n in range(9)])
    await commit(settings, 4)
    options: dict[str, Any] = {"group_id": names.workers, "auto_offset_reset": "earliest"}
    consumer = clients.consumer(through(settings, proxy), enable_auto_commit=False, **options)
    await consumer.start()
    try:
        refuse_offsets(proxy, code, code)
        assert await consumer.committed(key) == 4
        refuse_offsets(proxy, code, code)
        consumer.assign([key])
        assert await consumer.position(key) == 4
    finally:
        await consumer.stop()
    assert len(proxy.seen) == 4
