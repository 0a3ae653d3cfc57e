"""Faults of probers as a whole: other numbers of them, none at all, and lost answers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

from tests.chaos.failpoints import TOOK_BACK
from tests.chaos.faults.processes import FAILPOINT_SECONDS, TAKE_BACK, dies, until_dropped
from tests.chaos.kafka_cluster.admin import insist
from tests.chaos.roles import Role
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import JUDGES, PlannedFault

PROGRESS_SECONDS: Final = 60.0
"""Time-out of a verdict while other faults go on."""
_REPLICAS: Final = "NEARDUP_PROBER_REPLICAS"
_TAKEN_BACK: Final = "took_back_tables"


def _probers(scene: Scene) -> list[Role]:
    return [role for role in scene.roles.values() if role.kind == "prober"]


async def _keep_down(scene: Scene, roles: list[Role], stack: AsyncExitStack) -> None:
    """Kill roles, which stay away until the stack ends."""
    for role in roles:
        await stack.enter_async_context(role.down())
        scene.report.kills[role.kind] += 1


async def probers_changed(scene: Scene, plan: PlannedFault) -> bool:
    """Take some of the probers away for a while, or all. The others take over; if there are none, the judge
    waits."""
    probers = _probers(scene)
    async with AsyncExitStack() as stack:
        await _keep_down(scene, plan.rng.sample(probers, plan.rng.randint(1, len(probers))), stack)
        await asyncio.sleep(plan.hold)
    return True


async def without_probers(scene: Scene, plan: PlannedFault) -> bool:
    """Take all probers away, and let the judges go on without them, with all their tables, for a while. One
    is killed when it has taken tables back. It counts if they had dropped some."""
    judges = [scene.roles[name] for name in JUDGES]
    await until_dropped(judges)
    before = sum(role.count(_TAKEN_BACK) for role in judges)
    async with AsyncExitStack() as away:
        await _keep_down(scene, _probers(scene), away)
        async with AsyncExitStack() as stack:
            await _keep_down(scene, judges, stack)
            replicas, command = judges[0].environment[_REPLICAS], judges[0].command
            for role in judges:
                role.environment[_REPLICAS], role.command = "0", TAKE_BACK
            struck = plan.rng.choice(judges)
            struck.failpoint = f"{TOOK_BACK}:1"
        with suppress(TimeoutError):
            await asyncio.wait_for(dies(scene, struck, TOOK_BACK), FAILPOINT_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(scene.until_progress(), PROGRESS_SECONDS)
        await asyncio.sleep(plan.hold)
        async with AsyncExitStack() as stack:
            await _keep_down(scene, judges, stack)
            for role in judges:
                role.environment[_REPLICAS], role.command = replicas, command
    return sum(role.count(_TAKEN_BACK) for role in judges) > before


async def answers_lost(scene: Scene, plan: PlannedFault) -> bool:
    """Delete all answers that brokers have."""
    await asyncio.to_thread(insist, lambda: scene.admin.empty(f"{scene.namespace}.candidates"))
    return True


FAULTS: Final[dict[str, Fault]] = {
    "probers-changed": probers_changed, "without-probers": without_probers, "answers-lost": answers_lost,
}  # fmt: skip
