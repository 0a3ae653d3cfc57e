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


async def _hold(links: list[Link], plan: PlannedFault, cut: Cut, delay: float = 0.0) -> bool:
    for link in links:
        await link.set(cut, delay)
    try:
        await asyncio.sleep(plan.hold)
    finally:
        for link in links:
            await link.set()
    return True


def _between(cut: Cut, slowest: float = 0.0) -> Fault:
    """A fault of the links of one role to one or two brokers, or to all."""

    async def fault(scene: Scene, plan: PlannedFault) -> bool:
        rng = plan.rng
        links = scene.kafka.network.of(listener(rng.choice(sorted(scene.roles))))
        some = rng.sample(links, rng.randint(1, len(links)))
        return await _hold(some, plan, cut, rng.uniform(0.05, slowest) if slowest else 0.0)

    return fault


async def replication_cut(scene: Scene, plan: PlannedFault) -> bool:
    """The other brokers cannot reach one broker, so the partitions that it leads are not replicated."""
    links = scene.kafka.network.of(REPLICATION)
    return await _hold([plan.rng.choice(links)], plan, plan.rng.choice(("both", "refused")))


FAULTS: Final[dict[str, Fault]] = {
    "network-cut": _between("both"),
    "answers-cut": _between("answers"),  # requests are processed
    "requests-cut": _between("requests"),  # they arrive late
    "network-refused": _between("refused"),  # connections are reset, too
    "network-delay": _between("whole", SLOWEST),
    "replication-cut": replication_cut,
}
