"""Which windows of time a verdict counts in, how long each is kept, and which ones answer for a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from faust.windows import Window
from mode import Seconds, want_seconds

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400

TOTALS: Final = {5: 2 * HOUR, MINUTE: 3 * DAY, HOUR: 62 * DAY, DAY: 1100 * DAY}
"""Window size -> how long it is kept, in seconds: figures of all hosts together."""
HOSTS: Final = {MINUTE: 6 * HOUR, HOUR: 62 * DAY}
"""The same for the figures of each host."""
STEPS: Final = (5, 10, 30, 60, 300, 900, HOUR, 6 * HOUR, DAY)
"""What a point of a chart may stand for, in seconds; each is made of whole windows."""
MOST_POINTS: Final = 240

Range = tuple[float, float]


def expired(window: tuple[int, int], kept: int, now: float) -> bool:
    """Whether the time of a window, its start and its size, is over that is kept for so long."""
    start, size = window
    return start + size + kept <= now


class Calendar(Window):
    """Tumbling windows of several sizes at once: an event falls into one of each. Faust's have one size."""

    def __init__(self, kept: dict[int, int]) -> None:
        self.kept = kept
        self.expires = float(max(kept.values()))
        """For how long Faust keeps the changelog; each size is swept by `expired`."""

    def ranges(self, timestamp: float) -> list[Range]:
        """The window of each size that holds the moment, seconds since the epoch."""
        return [self._range(timestamp, size) for size in self.kept]

    def expired(self, window: Range, now: float) -> bool:
        """Whether a window's time is over."""
        start, end = window
        size = round(end - start)
        return expired((int(start), size), self.kept[size], now)

    # What else Faust's interface asks for.

    def stale(self, timestamp: float, latest_timestamp: float) -> bool:
        """Never: Faust would sweep only the keys that this process has written."""
        return False

    def current(self, timestamp: float) -> Range:
        """The smallest window."""
        return self._range(timestamp, min(self.kept))

    def delta(self, timestamp: float, d: Seconds) -> Range:
        """The smallest window `d` seconds earlier."""
        return self.current(timestamp - want_seconds(d))

    def earliest(self, timestamp: float) -> Range:
        """The same as `current`: windows do not overlap."""
        return self.current(timestamp)

    @staticmethod
    def _range(timestamp: float, size: int) -> Range:
        start = float(timestamp // size * size)
        return start, start + size


@dataclass(frozen=True, slots=True)
class Plan:
    """A range of time cut into equal steps, and the windows that add up to it."""

    start: int
    end: int
    """Exclusive. Both are multiples of `step`, seconds since the epoch."""
    step: int
    size: int
    """Size of the windows to add up; divides `step`."""

    @property
    def points(self) -> int:
        """How many steps there are."""
        return (self.end - self.start) // self.step


def plan(start: float, end: float, kept: dict[int, int], now: float) -> Plan:
    """The finest steps that answer for [start, end) with at most MOST_POINTS points and windows still kept.

    The range is widened to whole steps: its sums are those of whole windows, exact.
    """
    for step in STEPS:
        sizes = [
            size for size in kept if step % size == 0 and (size == max(kept) or now - kept[size] <= start)
        ]
        if not sizes or (end - start) / step > MOST_POINTS:
            continue
        return _widened(start, end, step, max(sizes))
    # Longer than the steps can show: as coarse as there is, as many points as it takes.
    return _widened(start, end, STEPS[-1], max(kept))


def _widened(start: float, end: float, step: int, size: int) -> Plan:
    first = int(start // step * step)
    last = int(-(-end // step) * step)
    return Plan(first, max(last, first + step), step, size)
