"""Faults of roles: killed, stopped or terminated."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import psutil  # type: ignore[import-untyped]

from tests.chaos.failpoints import OF_SEGMENTS, OPENING, TOOK_BACK
from tests.chaos.roles import READY, STOP_SECONDS, Role
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import TRIMMER, PlannedFault

TAKE_BACK: Final = "judge --take-back all"
"""The command of a judge that takes back what it dropped."""
STARTING_SECONDS: Final = 4.0
FAILPOINT_SECONDS: Final = 45.0
"""Time-out for reaching a failpoint."""
DROP_SECONDS: Final = 30.0
"""Time-out for dropping tables of a segment."""
FLUSH_SECONDS: Final = 4.0
"""Time in which a judge flushes what it did (see `configurations.py`)."""


async def until_dropped(judges: Collection[Role]) -> bool:
    """Wait for DROP_SECONDS at most until one of these judges has dropped tables of a segment, and flushed
    that. Returns whether one has: else it may have nothing to take back."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DROP_SECONDS):
            while True:
                before = [each.process for each in judges if each.has_logged("dropped_segment")]
                await asyncio.sleep(FLUSH_SECONDS if before else 0.2)
                if any(each.process in before and each.is_running for each in judges):
                    return True
    return False


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
    # Segments are few, so the next one it is.
    turn = 1 if place in OF_SEGMENTS else plan.rng.choice((1, 1, 2, 3))
    if place == TOOK_BACK:
        await until_dropped([role])
    scene.report.failpoints[place] += 0
    _begin_with(role, place, turn)
    _kill(scene, role)
    try:
        async with asyncio.timeout(FAILPOINT_SECONDS):
            while not await dies(scene, role, place):
                if place in OPENING and role.is_running:
                    return True  # it works, and is left alone
                _begin_with(role, place, turn)
    except TimeoutError:
        role.failpoint = role.next_command = None
        return _kill(scene, role)
    return True


def _begin_with(role: Role, place: str, turn: int) -> None:
    """Let the next process of a role kill itself at a failpoint."""
    role.failpoint = f"{place}:{turn}"
    if place == TOOK_BACK:
        role.next_command = TAKE_BACK


async def dies(scene: Scene, role: Role, place: str) -> bool:
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
