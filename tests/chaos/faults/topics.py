"""The topic of pages: cut short by retention, or deleted and made again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.scene import HANG_SECONDS, Fault, Scene
from tests.chaos.schedule import PlannedFault

ASK_SECONDS: Final = 20.0


def insist(ask: Callable[[], Any]) -> Any:
    """Ask until the brokers answer: some are always away here."""
    ends = time.monotonic() + HANG_SECONDS
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.3)


def topic_id(admin: AdminClient, topic: str) -> str | None:
    """32 hex digits, as in verdicts and journal; None where there is no such topic."""
    from confluent_kafka import TopicCollection

    def ask() -> str | None:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_SECONDS)[topic]
        try:
            found = described.result(ASK_SECONDS)
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise
        uuid, mask = found.topic_id, (1 << 64) - 1
        return (
            f"{uuid.get_most_significant_bits() & mask:016x}{uuid.get_least_significant_bits() & mask:016x}"
        )

    answer: str | None = insist(ask)
    return answer


async def retention(scene: Scene, plan: PlannedFault) -> bool:
    """Delete pages from the start of a partition, most of them judged, the newest perhaps not."""
    load = scene.load
    ends = load.given.ends(load.topic_id)
    if not ends:
        return False
    partition = plan.rng.choice(sorted(ends))
    below = max(1, ends[partition] - plan.rng.choice((0, 0, 5, 50)))
    load.given.delete_below(load.topic_id, partition, below)

    def delete() -> None:
        asked = scene.admin.delete_records(
            [TopicPartition(scene.pages, partition, below)], request_timeout=ASK_SECONDS
        )
        for answer in asked.values():
            answer.result(ASK_SECONDS)

    await asyncio.to_thread(insist, delete)
    return True


async def topic_recreated(scene: Scene, plan: PlannedFault) -> bool:
    """Delete the topic and make it again, half of the time once all its pages are judged."""
    load, admin, old = scene.load, scene.admin, scene.load.topic_id
    listed = await asyncio.to_thread(insist, lambda: admin.list_topics(scene.pages, ASK_SECONDS))
    partitions = len(listed.topics[scene.pages].partitions)
    await asyncio.to_thread(load.pause)
    if plan.rng.random() < 0.5:
        await scene.until(lambda: not scene.checker.outstanding)

    def delete() -> None:
        if topic_id(admin, scene.pages) == old:
            admin.delete_topics([scene.pages], request_timeout=ASK_SECONDS)[scene.pages].result(ASK_SECONDS)

    def create() -> str:
        found = topic_id(admin, scene.pages)
        if found is None:
            new = NewTopic(scene.pages, partitions, min(3, len(scene.kafka.brokers)))
            admin.create_topics([new], request_timeout=ASK_SECONDS)[scene.pages].result(ASK_SECONDS)
            found = topic_id(admin, scene.pages)
        if found in (None, old):
            raise TimeoutError
        return str(found)

    await asyncio.to_thread(insist, delete)
    load.resume(await asyncio.to_thread(insist, create))
    return True


FAULTS: Final[dict[str, Fault]] = {"retention": retention, "topic-recreated": topic_recreated}
