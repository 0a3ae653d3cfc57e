"""Faults of the pages topic: truncated by retention, or deleted and created again."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.chaos.kafka_cluster.admin import (
    NoAnswerError,
    count_partitions,
    create_topic,
    delete_records,
    delete_topics,
    insist,
    topic_id,
)
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault


async def retention(scene: Scene, plan: PlannedFault) -> bool:
    """Delete pages from the start of a partition. Most of them are judged; the newest may not be."""
    load = scene.load
    ends = load.given.ends(load.topic_id)
    if not ends:
        return False
    partition = plan.rng.choice(sorted(ends))
    below = max(1, ends[partition] - plan.rng.choice((0, 0, 5, 50)))
    load.given.delete_below(load.topic_id, partition, below)

    await asyncio.to_thread(insist, lambda: scene.admin.ask(delete_records, scene.pages, partition, below))
    return True


async def topic_recreated(scene: Scene, plan: PlannedFault) -> bool:
    """Delete the topic and create it again; in half of the cases once all its pages are judged."""
    load, admin, old = scene.load, scene.admin, scene.load.topic_id
    partitions = await asyncio.to_thread(insist, lambda: admin.ask(count_partitions, scene.pages))
    await asyncio.to_thread(load.pause)
    if plan.rng.random() < 0.5:
        await scene.until(lambda: not scene.checker.outstanding)

    def delete() -> None:
        if admin.ask(topic_id, scene.pages) == old:
            admin.ask(delete_topics, scene.pages)

    def create() -> str:
        found = admin.ask(topic_id, scene.pages)
        if found is None:
            admin.ask(create_topic, scene.pages, partitions, min(3, len(scene.kafka.brokers)))
            found = admin.ask(topic_id, scene.pages)
        if found in (None, old):
            raise NoAnswerError("the new topic is not there yet")
        return str(found)

    await asyncio.to_thread(insist, delete)
    load.resume(await asyncio.to_thread(insist, create))
    return True


FAULTS: Final[dict[str, Fault]] = {"retention": retention, "topic-recreated": topic_recreated}
