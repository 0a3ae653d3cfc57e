"""Faults of brokers: killed, stopped or terminated, at random or by what they coordinate or lead."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Final

from tests.chaos.kafka_cluster.admin import NoAnswerError, coordinator, leader
from tests.chaos.kafka_cluster.brokers import Broker
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault

ALL_SECONDS: Final = 3.0


def _choose_broker(scene: Scene, plan: PlannedFault) -> Broker:
    return plan.rng.choice(scene.kafka.brokers)


async def _kill(scene: Scene, broker: Broker) -> bool:
    await asyncio.to_thread(broker.kill)
    scene.report.kills["broker"] += 1
    await asyncio.to_thread(broker.start)
    return True


async def broker_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to any broker."""
    return await _kill(scene, _choose_broker(scene, plan))


async def broker_terminate(scene: Scene, plan: PlannedFault) -> bool:
    """SIGTERM: a broker hands over what it leads, and is started again."""
    broker = _choose_broker(scene, plan)
    broker.signal(signal.SIGTERM)
    await asyncio.to_thread(broker.wait)
    await asyncio.to_thread(broker.start)
    return True


async def broker_stop(scene: Scene, plan: PlannedFault) -> bool:
    """SIGSTOP, then SIGCONT: a broker that does not answer, and lags afterwards."""
    broker = _choose_broker(scene, plan)
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(plan.hold)
    broker.signal(signal.SIGCONT)
    return True


async def all_brokers_stop(scene: Scene, plan: PlannedFault) -> bool:
    """SIGSTOP to all brokers for a moment."""
    for broker in scene.kafka.brokers:
        broker.signal(signal.SIGSTOP)
    await asyncio.sleep(min(plan.hold, ALL_SECONDS))
    for broker in scene.kafka.brokers:
        broker.signal(signal.SIGCONT)
    return True


async def coordinator_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to the coordinator of the workers' or the judges' group."""
    group = f"{scene.namespace}.{plan.rng.choice(('workers', 'judge'))}"
    return await _kill_broker_of(scene, lambda: scene.admin.ask(coordinator, group))


async def leader_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to the leader of the journal or of the decisions."""
    topic = f"{scene.namespace}.{plan.rng.choice(('journal', 'decisions'))}"
    return await _kill_broker_of(scene, lambda: scene.admin.ask(leader, topic))


async def _kill_broker_of(scene: Scene, ask: Callable[[], int]) -> bool:
    with contextlib.suppress(NoAnswerError):
        number = await asyncio.to_thread(ask)
        if number > 0:
            return await _kill(scene, scene.kafka.broker(number))
    return False


FAULTS: Final[dict[str, Fault]] = {
    "broker-kill": broker_kill, "broker-stop": broker_stop, "broker-terminate": broker_terminate,
    "coordinator-kill": coordinator_kill, "leader-kill": leader_kill, "all-brokers-stop": all_brokers_stop,
}  # fmt: skip
