"""Whether a worker's children fit into the memory that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from stream.settings import MIB, Settings

WORKER_BYTES: Final = 256 * MIB
"""What the worker's own process takes besides `worker_memory`."""


class Room(NamedTuple):
    """Memory that this process and its children may take."""

    size: int
    """Bytes."""
    what: str
    """Who says so."""


def room(root: Path = Path("/")) -> Room:
    """The machine's memory, or the limit of a control group where that is less; below `root`, for tests."""
    meminfo = (root / "proc/meminfo").read_text()
    kibibytes = next(line.split()[1] for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    found = [Room(int(kibibytes) * 1024, "the machine's memory")]
    for file in _limit_files(root):
        try:
            text = file.read_text().strip()
        except OSError:  # the group's path as the host knows it, or no such controller
            continue
        if text.isdigit():  # or `max`
            found.append(Room(int(text), f"the container's limit ({file.name})"))
    return min(found)


def overcommitted(settings: Settings, room: Room) -> str | None:
    """What is wrong where all children together could take more than there is: then the kernel ends whichever
    process it likes, perhaps the worker, and not the child whose page is at fault."""
    children = settings.worker_processes * settings.child_memory
    needed = children + settings.worker_memory + WORKER_BYTES
    if needed <= room.size:
        return None
    fits = (room.size - settings.worker_memory - WORKER_BYTES) // settings.worker_processes
    cure = f"at most {fits // MIB} MiB" if fits >= 512 * MIB else "less, or fewer worker_processes"
    return (
        f"child_memory {settings.child_memory // MIB} MiB x worker_processes {settings.worker_processes} and "
        f"worker_memory {settings.worker_memory // MIB} MiB want {needed // MIB} MiB with the worker itself; "
        f"{room.what} is {room.size // MIB} MiB: make child_memory {cure}, or give it more memory"
    )


def _limit_files(root: Path) -> list[Path]:
    """Files with limits of this process's control group and those around it, versions 2 and 1."""
    mounted = root / "sys/fs/cgroup"
    files = [mounted / "memory/memory.limit_in_bytes"]  # in a container, its own group is mounted here
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = mounted / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = base / path.lstrip("/")
        files += [each / name for each in (group, *group.parents) if each.is_relative_to(base)]
    return files
