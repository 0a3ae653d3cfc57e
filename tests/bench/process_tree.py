"""Runs a command and measures it with all processes that it starts. Linux: it reads /proc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

SAMPLED: Final = 0.2
"""Seconds between two looks at the processes."""
MEMORY_SAMPLED: Final = 5
"""Looks between two at their memory, which take longer."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a command and its processes used."""

    seconds: float
    processor_seconds: float
    peak_mib: int
    """Memory that is not a file's, shared pages counted once."""


def measure(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Cost:
    """Run a command to its end. Raises CalledProcessError if it fails; its output is in `log`."""
    times: dict[int, float] = {}
    peak = looks = 0
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while process.poll() is None:
                pids = _session(process.pid, times)
                if looks % MEMORY_SAMPLED == 0:
                    peak = max(peak, sum(map(_memory, pids)))
                looks += 1
                time.sleep(SAMPLED)
        finally:
            process.kill()
    seconds = time.perf_counter() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(round(seconds, 1), round(sum(times.values()), 1), peak >> 20)


def _session(leader: int, times: dict[int, float]) -> list[int]:
    """The processes of a session; notes the processor time of each."""
    pids = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == leader:
            pids.append(int(entry.name))
            times[pids[-1]] = (int(fields[11]) + int(fields[12])) / _TICKS
    return pids


def _memory(pid: int) -> int:
    """Bytes of a process that are not a file's; pages that others share count in proportion."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
