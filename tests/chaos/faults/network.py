"""Faults of the network: cut, refused or slow, between a role and some brokers or between brokers."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.chaos.kafka_cluster.brokers import REPLICATION
from tests.chaos.kafka_cluster.proxy import Cut, Link
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault, listener

SLOWEST: Final = 0.8
"""Seconds that each direction of a slow link takes."""


def _links(scene: Scene, plan: PlannedFault) -> list[Link]:
    """Return the links of one role to one or two brokers, or to all."""
    rng = plan.rng
    links = scene.kafka.network.of(listener(rng.choice(sorted(scene.roles))))
    return rng.sample(links, rng.randint(1, len(links)))


async def _hold(links: list[Link], plan: PlannedFault, cut: Cut, delay: float = 0.0) -> bool:
    for link in links:
        await link.set(cut, delay)
    try:
        await asyncio.sleep(plan.hold)
    finally:
        for link in links:
            await link.set()
    return True


async def network_cut(scene: Scene, plan: PlannedFault) -> bool:
    """Both directions are cut."""
    return await _hold(_links(scene, plan), plan, "both")


async def answers_cut(scene: Scene, plan: PlannedFault) -> bool:
    """Requests are processed, but answers are held back."""
    return await _hold(_links(scene, plan), plan, "answers")


async def requests_cut(scene: Scene, plan: PlannedFault) -> bool:
    """Requests are held back, and arrive late."""
    return await _hold(_links(scene, plan), plan, "requests")


async def network_refused(scene: Scene, plan: PlannedFault) -> bool:
    """Connections are reset, and new ones refused."""
    return await _hold(_links(scene, plan), plan, "refused")


async def network_delay(scene: Scene, plan: PlannedFault) -> bool:
    """Both directions are slow."""
    return await _hold(_links(scene, plan), plan, "whole", plan.rng.uniform(0.05, SLOWEST))


async def replication_cut(scene: Scene, plan: PlannedFault) -> bool:
    """The other brokers cannot reach one broker, so the partitions that it leads are not replicated."""
    links = scene.kafka.network.of(REPLICATION)
    return await _hold([plan.rng.choice(links)], plan, plan.rng.choice(("both", "refused")))


FAULTS: Final[dict[str, Fault]] = {
    "network-cut": network_cut, "answers-cut": answers_cut, "requests-cut": requests_cut,
    "network-refused": network_refused, "network-delay": network_delay, "replication-cut": replication_cut,
}  # fmt: skip
