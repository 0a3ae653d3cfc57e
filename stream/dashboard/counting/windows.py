"""The time windows in which verdicts are counted: their sizes, their retention, and how to query them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400

TOTALS: Final = {5: 2 * HOUR, MINUTE: 3 * DAY, HOUR: 62 * DAY, DAY: 1100 * DAY}
"""Window size -> retention, in seconds, of the figures of all hosts together."""
HOSTS: Final = {MINUTE: 6 * HOUR, HOUR: 62 * DAY}
"""Window size -> retention, in seconds, of the figures of each host."""
STEPS: Final = (5, 10, 30, 60, 300, 900, HOUR, 6 * HOUR, DAY)
"""Possible lengths of a point of a chart, in seconds, each a multiple of some window size."""
MOST_POINTS: Final = 240

Window = tuple[int, int]
"""(start, size), in seconds."""


def expired(window: Window, retention: int, now: float) -> bool:
    """Return whether the `retention` of a window (start, size) is over."""
    start, size = window
    return start + size + retention <= now


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A time range divided into equal steps, and the window size to sum up."""

    start: int
    end: int
    """Exclusive. Both are multiples of `step`, seconds since the epoch."""
    step: int
    size: int
    """Size of the windows to add up; divides `step`."""

    @property
    def points(self) -> int:
        """Number of steps."""
        return (self.end - self.start) // self.step


def plan(start: float, end: float, retention: dict[int, int], now: float) -> WindowPlan:
    """Choose the finest step for [start, end) with at most MOST_POINTS points and windows not yet expired.

    The range is widened to whole steps, so that its sums are exact.
    """
    for step in STEPS:
        sizes = [
            size
            for size in retention
            if step % size == 0 and (size == max(retention) or now - retention[size] <= start)
        ]
        if not sizes or (end - start) / step > MOST_POINTS:
            continue
        return _widen(start, end, step, max(sizes))
    # Too long for MOST_POINTS points: use the coarsest step and more points.
    return _widen(start, end, STEPS[-1], max(retention))


def _widen(start: float, end: float, step: int, size: int) -> WindowPlan:
    first = int(start // step * step)
    last = int(-(-end // step) * step)
    return WindowPlan(first, max(last, first + step), step, size)
