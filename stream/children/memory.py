"""Checks whether the children of a worker, or of `neardup scan`, fit into the available memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

from stream.settings import MIB, Settings

OWN_BYTES: Final = 256 * MIB
"""Memory of the parent process besides the pages or tables, which an option bounds."""
LEAST_CHILD: Final = 512 * MIB
"""Smallest `child_memory` that is recommended. 16 MiB of ordinary HTML take 410 MiB."""


class MemoryLimit(NamedTuple):
    """The memory available to this process and its children."""

    size: int
    """Bytes."""
    what: str
    """What sets the limit, for messages."""


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The machine's memory, or a lower limit of a control group. Files are read below `root`, for tests."""
    meminfo = (root / "proc/meminfo").read_text()
    kibibytes = next(line.split()[1] for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    limits = [MemoryLimit(int(kibibytes) * 1024, "the machine's memory")]
    for file in _limit_files(root):
        try:
            text = file.read_text().strip()
        except OSError:  # no such controller, or the path is the host's and not visible here
            continue
        if text.isdigit():  # or `max`
            limits.append(MemoryLimit(int(text), f"the container's limit ({file.name})"))
    return min(limits)


def overcommitted(
    settings: Settings, limit: MemoryLimit, own: Literal["worker_memory", "tables_memory"]
) -> str | None:
    """A warning if parent and children together could exceed the available memory, else None.

    The kernel would then kill any process, perhaps the parent, rather than the child whose page is at fault.
    `own` is the option that bounds the parent's memory.
    """
    children, held = settings.worker_processes * settings.child_memory, getattr(settings, own)
    needed = children + held + OWN_BYTES
    if needed <= limit.size:
        return None
    fits = (limit.size - held - OWN_BYTES) // settings.worker_processes
    cure = f"at most {fits // MIB} MiB" if fits >= LEAST_CHILD else "less, or fewer worker_processes"
    return (
        f"child_memory {settings.child_memory // MIB} MiB x worker_processes {settings.worker_processes} and "
        f"{own} {held // MIB} MiB need {needed // MIB} MiB together with the process itself; "
        f"{limit.what} is {limit.size // MIB} MiB: set child_memory to {cure}, or provide more memory"
    )


def _limit_files(root: Path) -> list[Path]:
    """The files that limit the memory of this process's control group and its ancestors, cgroup v1 and v2."""
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
