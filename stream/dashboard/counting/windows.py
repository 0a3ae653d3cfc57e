"""The time windows in which verdicts are counted: their sizes, their retention, and how to query them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from faust.windows import Window
from mode import Seconds, want_seconds

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

Range = tuple[float, float]


def expired(window: tuple[int, int], retention: int, now: float) -> bool:
    """Return whether the `retention` of a window (start, size) is over."""
    start, size = window
    return start + size + retention <= now


class Calendar(Window):
    """Tumbling windows of several sizes, where an event falls into one window of each size.

    Faust's own windows have one size.
    """

    def __init__(self, kept: dict[int, int]) -> None:
        self.kept = kept
        self.expires = float(max(kept.values()))
        """Retention of the changelog. Windows of each size are swept by `expired`."""

    def ranges(self, timestamp: float) -> list[Range]:
        """Return the window of each size that contains the time, in seconds since the epoch."""
        return [self._range(timestamp, size) for size in self.kept]

    def expired(self, window: Range, now: float) -> bool:
        """Return whether the retention of a window is over."""
        start, end = window
        size = round(end - start)
        return expired((int(start), size), self.kept[size], now)

    # Required by Faust's interface.

    def stale(self, timestamp: float, latest_timestamp: float) -> bool:
        """Return False, since Faust would sweep only the keys that this process wrote."""
        return False

    def current(self, timestamp: float) -> Range:
        """Return the smallest window."""
        return self._range(timestamp, min(self.kept))

    def delta(self, timestamp: float, d: Seconds) -> Range:
        """Return the smallest window `d` seconds earlier."""
        return self.current(timestamp - want_seconds(d))

    def earliest(self, timestamp: float) -> Range:
        """Return `current`, since windows do not overlap."""
        return self.current(timestamp)

    @staticmethod
    def _range(timestamp: float, size: int) -> Range:
        start = float(timestamp // size * size)
        return start, start + size


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
