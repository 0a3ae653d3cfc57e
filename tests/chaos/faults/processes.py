"""Faults of roles: killed, stopped or terminated."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import psutil  # type: ignore[import-untyped]

from tests.chaos.failpoints import OPENING
from tests.chaos.roles import READY, STOP_SECONDS, Role
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import TRIMMER, PlannedFault

STARTING_SECONDS: Final = 4.0
FAILPOINT_SECONDS: Final = 45.0
"""Time-out for reaching a failpoint."""


def _kill(scene: Scene, role: Role) -> bool:
    happened = role.signal(signal.SIGKILL)
    scene.report.kills[role.kind] += happened
    return happened


async def kill(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to a role at any moment."""
    return _kill(scene, scene.roles[plan.lane])


async def kill_while_starting(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to a role, and again while its next process starts."""
    role = scene.roles[plan.lane]
    first = _kill(scene, role)
    await asyncio.sleep(plan.rng.uniform(0.3, STARTING_SECONDS))
    return _kill(scene, role) or first


async def failpoint(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to a role, whose next process kills itself at a failpoint; or one of those that follow, if it
    ends before."""
    role, place = scene.roles[plan.lane], plan.place
    scene.report.failpoints[place] += 0
    at = role.failpoint = f"{place}:{plan.rng.choice((1, 1, 2, 3))}"
    _kill(scene, role)
    try:
        async with asyncio.timeout(FAILPOINT_SECONDS):
            while not await _dies(scene, role, place):
                if place in OPENING and role.is_running:
                    return True  # it works, and is left alone
                role.failpoint = at
    except TimeoutError:
        role.failpoint = None
        return _kill(scene, role)
    return True


async def _dies(scene: Scene, role: Role, place: str) -> bool:
    """Wait until the next process of a role, which is to kill itself at a failpoint, ends, or works though it
    was to end before that. Returns whether it died at the failpoint."""
    await scene.until(lambda: role.failpoint is None and role.is_running)
    process = role.process
    assert process is not None
    while process.returncode is None:
        if place in OPENING and role.kind != TRIMMER and role.has_logged(*READY):
            return False
        await asyncio.sleep(0.1)
    died = process.returncode == -signal.SIGKILL and role.killed is not process
    scene.report.kills[role.kind] += died
    scene.report.failpoints[place] += died
    return died


async def stop(scene: Scene, plan: PlannedFault) -> bool:
    """SIGSTOP to a role, and SIGCONT when its session may have expired and another member leads."""
    role = scene.roles[plan.lane]
    process = role.process
    if not role.signal(signal.SIGSTOP):
        return False
    await asyncio.sleep(plan.hold)
    if role.process is process:
        role.signal(signal.SIGCONT)
    return True


async def terminate(scene: Scene, plan: PlannedFault) -> bool:
    """SIGTERM to a role, which finishes its batch and ends; with an error if brokers are unreachable
    meanwhile."""
    role = scene.roles[plan.lane]
    process = role.process
    if process is None or not role.signal(signal.SIGTERM):
        return False
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        scene.report.unexplained.append(f"{role.name}: did not end within {STOP_SECONDS} s of SIGTERM")
        _kill(scene, role)
    return True


async def kill_child(scene: Scene, plan: PlannedFault) -> bool:
    """SIGKILL to a child process that fingerprints."""
    children = scene.roles[plan.lane].children()
    if not children:
        return False
    try:
        plan.rng.choice(children).kill()
    except psutil.NoSuchProcess:
        return False
    scene.report.kills["child"] += 1
    return True


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill, "kill-while-starting": kill_while_starting, "failpoint": failpoint, "stop": stop,
    "terminate": terminate, "kill-child": kill_child,
}  # fmt: skip
