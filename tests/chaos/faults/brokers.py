"""Brokers killed, stopped and told to end; which one may depend on what it is in charge of."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Final

from tests.chaos.kafka_cluster.admin import NoAnswerError
from tests.chaos.kafka_cluster.brokers import Broker
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault

ALL_SECONDS: Final = 3.0


def _any(scene: Scene, plan: PlannedFault) -> Broker:
    return plan.rng.choice(scene.kafka.brokers)


async def _killed(scene: Scene, broker: Broker) -> bool:
    await asyncio.to_thread(broker.kill)
    scene.report.kills["broker"] += 1
    await asyncio.to_thread(broker.start)
    return True


async def broker_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to any broker."""
    return await _killed(scene, _any(scene, plan))


async def broker_terminate(scene: Scene, plan: PlannedFault) -> bool:
    """SIGTERM: a broker hands over what it leads, and is started again."""
    broker = _any(scene, plan)
    broker.signal(signal.SIGTERM)
    await asyncio.to_thread(broker.wait)
    await asyncio.to_thread(broker.start)
    return True


async def broker_stop(scene: Scene, plan: PlannedFault) -> bool:
    """SIGSTOP and SIGCONT: a broker that is silent, and then behind."""
    broker = _any(scene, plan)
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(plan.hold)
    broker.signal(signal.SIGCONT)
    return True


async def all_brokers_stop(scene: Scene, plan: PlannedFault) -> bool:
    """SIGSTOP to all of them for a moment."""
    for broker in scene.kafka.brokers:
        broker.signal(signal.SIGSTOP)
    await asyncio.sleep(min(plan.hold, ALL_SECONDS))
    for broker in scene.kafka.brokers:
        broker.signal(signal.SIGCONT)
    return True


async def coordinator_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to the coordinator of the workers' or the judges' group."""
    group = f"{scene.namespace}.{plan.rng.choice(('workers', 'judge'))}"
    return await _kill_asked(scene, lambda: scene.admin.coordinator(group))


async def leader_kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to the leader of the journal or of the decisions."""
    topic = f"{scene.namespace}.{plan.rng.choice(('journal', 'decisions'))}"
    return await _kill_asked(scene, lambda: scene.admin.leader(topic))


async def _kill_asked(scene: Scene, ask: Callable[[], int]) -> bool:
    with contextlib.suppress(NoAnswerError):
        number = await asyncio.to_thread(ask)
        if number > 0:
            return await _killed(scene, scene.kafka.broker(number))
    return False


FAULTS: Final[dict[str, Fault]] = {
    "broker-kill": broker_kill, "broker-stop": broker_stop, "broker-terminate": broker_terminate,
    "coordinator-kill": coordinator_kill, "leader-kill": leader_kill, "all-brokers-stop": all_brokers_stop,
}  # fmt: skip
