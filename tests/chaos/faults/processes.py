"""Faults of roles: killed, stopped or terminated."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import psutil  # type: ignore[import-untyped]

from tests.chaos.roles import READY, STOP_SECONDS, Role
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PROBERS, TRIMMER, PlannedFault

FAILPOINTS: Final = {
    "judge": (
        "judge.sent", "judge.committed", "judge.ahead", "judge.ledger_sent", "judge.ledger_committed",
        "judge.ledger_applied", "turn.decided", "turn.sent", "turn.committed", "turn.applied", "drop.run",
        "drop.pages", "sweep.urls", "forget.requested", "forget.sent", "forget.decided", "forget.erased",
        "forget.compacted", "flush",
        "freeze.build", "freeze.ingest", "freeze.meta", "checkpoint.linked", "checkpoint.file",
        "checkpoint.manifest", "checkpoint.pruned", "restore.file", "restore.renamed",
    ),
    "prober": ("prober.loaded", "prober.answered"),
    "worker": ("worker.before_append", "worker.append"),
    "trim": ("trim.decisions", "trim.journal", "restore.file"),
    "elector": (
        "elector.sent", "elector.written", "elector.flushed", "forget.erased", "forget.compacted", "flush",
        "checkpoint.linked", "checkpoint.file", "checkpoint.manifest", "checkpoint.pruned", "restore.file",
        "restore.renamed",
    ),
}  # fmt: skip
"""Failpoints by role (see `stream/failpoints.py`)."""
OF_SEGMENTS: Final = ("segment.exported", "segment.announced", "judge.dropped_segment", "judge.took_back")
"""Further ones of a judge, which half of the failpoints are where there are probers."""
OPENING: Final = ("restore.file", "restore.renamed", "judge.took_back")
"""Those that a judge or an elector reaches before it works, or not at all."""
TAKE_BACK: Final = "judge --take-back all"
"""The command of a judge that takes back what it dropped."""
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
    """SIGKILL to a role, whose next process kills itself at a failpoint."""
    role, rng = scene.roles[plan.lane], plan.rng
    places = FAILPOINTS[role.kind]
    if role.kind == "judge" and PROBERS[0] in scene.roles and rng.random() < 0.5:
        places = OF_SEGMENTS
    place, turn = rng.choice(places), rng.choice((1, 1, 2, 3))
    if place == "judge.took_back":
        role.next_command, turn = TAKE_BACK, 1
    role.failpoint = f"{place}:{turn}"
    _kill(scene, role)
    await scene.until(lambda: role.failpoint is None and role.is_running)
    process = role.process
    assert process is not None
    try:
        async with asyncio.timeout(FAILPOINT_SECONDS):
            while process.returncode is None:
                if place in OPENING and role.kind != TRIMMER and role.has_logged(*READY):
                    return True  # it works, and is left alone
                await asyncio.sleep(0.1)
    except TimeoutError:
        return _kill(scene, role)
    died = process.returncode == -signal.SIGKILL
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
