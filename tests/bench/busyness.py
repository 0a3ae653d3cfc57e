"""How busy other programs keep the machine while nothing of ours runs. Linux: it reads /proc."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

SAMPLED: Final = 2.0
"""Seconds of a sample."""
BUSY: Final = 0.05
"""Share of the processors above which figures are marked: they are those of a busy machine."""
_IDLE: Final = (3, 4)
"""Columns of /proc/stat: idle, and waiting for a disk."""


def sample_others() -> float:
    """Return the share of the processors that others use while this process sleeps."""
    before = _read_times()
    time.sleep(SAMPLED)
    return share_used(before, _read_times())


def share_used(before: list[int], after: list[int]) -> float:
    """Return the share of processor time that was not idle between two samples of all columns."""
    spent = [later - earlier for earlier, later in zip(before, after, strict=True)]
    total = sum(spent)
    return 1 - sum(spent[column] for column in _IDLE) / total if total else 0.0


def _read_times() -> list[int]:
    first = Path("/proc/stat").read_text("utf-8").splitlines()[0]
    return [int(field) for field in first.split()[1:9]]  # guests are counted as users
