"""Faults of the state directory of a judge or elector while it is dead, and of its disk while it runs."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.chaos.roles import READY, Role
from tests.chaos.scene import Fault, Scene
from tests.chaos.schedule import PlannedFault

FLIPS: Final = 4
"""Most bits flipped by one fault, all in one file."""
FULL_SECONDS: Final = 6.0


async def state_deleted(scene: Scene, plan: PlannedFault) -> bool:
    """Kill a role and delete its state, which is then rebuilt from journal and decisions."""
    role = scene.roles[plan.lane]
    async with role.down():
        scene.report.kills[role.kind] += 1
        await asyncio.to_thread(role.delete_state)
    return True


async def older_state(scene: Scene, plan: PlannedFault) -> bool:
    """Kill a role and restore an older copy of its state. The first time, and at times later, make the
    copy."""
    role = scene.roles[plan.lane]
    copy = role.state.with_name("copy")
    assert role.disk is not None
    async with role.down():
        scene.report.kills[role.kind] += 1
        if copy.exists() and role.state.exists():
            await asyncio.to_thread(role.delete_state)
            await asyncio.to_thread(shutil.copytree, copy, role.state)
            await asyncio.to_thread(role.disk.sync)
            if plan.rng.random() < 0.5:
                await asyncio.to_thread(shutil.rmtree, copy)
            return True
        if role.state.exists() and not role.damaged:
            try:
                await asyncio.to_thread(shutil.copytree, role.state, copy)
            except shutil.Error:  # there is no room for one
                await asyncio.to_thread(shutil.rmtree, copy)
            await asyncio.to_thread(role.disk.sync)  # a backup outlives a power loss
    return False


async def bit_flips(scene: Scene, plan: PlannedFault) -> bool:
    """Kill a role and flip bits in one file of its state, which is then refused and rebuilt, or works."""
    return await _damage(scene, plan, _flip)


async def cut_file(scene: Scene, plan: PlannedFault) -> bool:
    """Kill a role and truncate, zero, empty or remove one file of its state, which is then refused and
    rebuilt, or works."""
    return await _damage(scene, plan, _cut)


async def _damage(scene: Scene, plan: PlannedFault, harm: Callable[[Path, random.Random], None]) -> bool:
    role = scene.roles[plan.lane]
    async with role.down():
        scene.report.kills[role.kind] += 1
        file = await asyncio.to_thread(_choose_file, role.state, plan.rng)
        if file is not None:
            await asyncio.to_thread(harm, file, plan.rng)
            role.note_damage()
        return file is not None


def _choose_file(state: Path, rng: random.Random) -> Path | None:
    """Return a file that RocksDB reads, with larger files more often."""
    files = sorted(
        file for file in state.rglob("*") if file.is_file() and file.stat().st_size and "LOG" not in file.name
    )
    if not files:
        return None
    weights = [file.stat().st_size for file in files] if rng.random() < 0.6 else None
    return rng.choices(files, weights)[0]


def _flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, FLIPS)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    with file.open("r+b") as written:
        written.write(content)


def _cut(file: Path, rng: random.Random) -> None:
    size = file.stat().st_size
    to = rng.choice((0, rng.randrange(size), rng.randrange(size), None))
    if to is None:
        file.unlink()
        return
    os.truncate(file, to)
    if rng.random() < 0.3:  # the length reached the disk, the data did not
        os.truncate(file, size)


async def power_loss(scene: Scene, plan: PlannedFault) -> bool:
    """Kill the processes and lose what was not synced."""
    role = scene.roles[plan.lane]
    disk = role.disk
    assert disk is not None

    def fail() -> None:
        # Stopped first: no error of a dead disk is met by a process that would have died with it.
        role.signal(signal.SIGSTOP)
        disk.cut_power()

    async with role.down(fail):
        scene.report.kills[role.kind] += 1
        await asyncio.to_thread(disk.restore_power)
    return True


async def disk_full(scene: Scene, plan: PlannedFault) -> bool:
    """Fill the disk for a while. The role may end, and starts again when there is room."""
    role = scene.roles[plan.lane]
    disk = role.disk
    assert disk is not None
    role.excused = True
    try:
        await asyncio.to_thread(disk.fill)
        await asyncio.sleep(FULL_SECONDS + plan.hold)
        await asyncio.to_thread(disk.empty)
    finally:
        await asyncio.to_thread(disk.empty)
        await _wait_until_settled(scene, role)
        role.excused = False
    return True


async def _wait_until_settled(scene: Scene, role: Role) -> None:
    """Wait until the role has restarted, or goes on, after the full disk."""
    process = role.process
    await scene.until(lambda: role.process is not process or role.has_logged(*READY))
    await asyncio.sleep(1)


FAULTS: Final[dict[str, Fault]] = {
    "state-deleted": state_deleted, "older-state": older_state, "bit-flips": bit_flips,
    "cut-file": cut_file, "power-loss": power_loss, "disk-full": disk_full,
}  # fmt: skip
NEED_A_DISK: Final = frozenset({"power-loss", "disk-full"})
"""Kinds that need a file system of the role's own."""
