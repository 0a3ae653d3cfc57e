"""Whether the children of a worker, or of `neardup scan`, fit into the memory that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

from stream.settings import MIB, Settings

OWN_BYTES: Final = 256 * MIB
"""What the children's parent takes besides the pages or tables that an option bounds."""
LEAST_CHILD: Final = 512 * MIB
"""No smaller `child_memory` is advised: 16 MiB of ordinary HTML take 410 MiB."""


class MemoryLimit(NamedTuple):
    """Memory that this process and its children may take."""

    size: int
    """Bytes."""
    what: str
    """Who says so."""


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The machine's memory, or the limit of a control group where that is less; below `root`, for tests."""
    meminfo = (root / "proc/meminfo").read_text()
    kibibytes = next(line.split()[1] for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    found = [MemoryLimit(int(kibibytes) * 1024, "the machine's memory")]
    for file in _limit_files(root):
        try:
            text = file.read_text().strip()
        except OSError:  # the group's path as the host knows it, or no such controller
            continue
        if text.isdigit():  # or `max`
            found.append(MemoryLimit(int(text), f"the container's limit ({file.name})"))
    return min(found)


def overcommitted(
    settings: Settings, limit: MemoryLimit, own: Literal["worker_memory", "tables_memory"]
) -> str | None:
    """What is wrong where all children together could take more than there is: then the kernel ends whichever
    process it likes, perhaps their parent, and not the child whose page is at fault. `own` is the option that
    bounds what the parent holds."""
    children, held = settings.worker_processes * settings.child_memory, getattr(settings, own)
    needed = children + held + OWN_BYTES
    if needed <= limit.size:
        return None
    fits = (limit.size - held - OWN_BYTES) // settings.worker_processes
    cure = f"at most {fits // MIB} MiB" if fits >= LEAST_CHILD else "less, or fewer worker_processes"
    return (
        f"child_memory {settings.child_memory // MIB} MiB x worker_processes {settings.worker_processes} and "
        f"{own} {held // MIB} MiB want {needed // MIB} MiB with the process itself; "
        f"{limit.what} is {limit.size // MIB} MiB: make child_memory {cure}, or give it more memory"
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
