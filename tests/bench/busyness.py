"""How busy other programs keep the machine while nothing of ours runs."""

from __future__ import annotations

from typing import Final

import psutil

SAMPLED: Final = 2.0
"""Seconds of a sample."""
BUSY: Final = 0.05
"""Share of the processors above which figures are marked: they are those of a busy machine."""


def sample_others() -> float:
    """Return the share of the processors that others use while this process sleeps."""
    spent = psutil.cpu_times_percent(SAMPLED)
    return 1 - (spent.idle + getattr(spent, "iowait", 0.0)) / 100
