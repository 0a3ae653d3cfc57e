"""Lag over time: of each role, and of its partitions that were furthest behind.

It is kept in memory since the start of the dashboard, in windows, each with the largest lag measured in it.
Their number is bounded, and so is the number of partitions in each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from stream.dashboard.answers import LagSeries
from stream.dashboard.counting.windows import DAY, HOUR, MINUTE, WindowPlan, plan
from stream.dashboard.deployment.lag import PartitionLag, TopicLag, furthest_behind

KEPT: Final = {10: 2 * HOUR, MINUTE: DAY, 15 * MINUTE: 31 * DAY}
"""Window size -> retention, in seconds."""
MOST_PARTITIONS: Final = 8
"""Partitions kept in each window, and shown of each range."""


@dataclass(slots=True)
class LagWindow:
    """The largest lag of a role in some seconds."""

    start: int
    records: int = 0
    seconds: float | None = 0.0
    """None if the age was unknown each time that there was a lag."""
    partitions: dict[int, PartitionLag] = field(default_factory=dict)
    """The partitions furthest behind, at most MOST_PARTITIONS."""
    behind: int = 0
    """Partitions that were behind at once."""
    complete: bool = True
    """Whether all partitions that were behind are in `partitions`."""

    @classmethod
    def of(cls, start: int, lag: TopicLag) -> LagWindow:
        """A window with one measurement."""
        worst = {each.partition: each for each in lag.partitions[:MOST_PARTITIONS]}
        behind = len(lag.partitions)
        return cls(start, lag.records, lag.seconds, worst, behind, behind <= MOST_PARTITIONS)

    def add(self, other: LagWindow) -> None:
        """Add what was measured in another window."""
        self.records, self.seconds = max(self.records, other.records), _larger(self.seconds, other.seconds)
        self.behind, self.complete = max(self.behind, other.behind), self.complete and other.complete
        for number, lag in other.partitions.items():
            largest = self.partitions.get(number, lag)
            self.partitions[number] = PartitionLag(
                number, max(largest.records, lag.records), _larger(largest.seconds, lag.seconds)
            )
        if len(self.partitions) > MOST_PARTITIONS:
            ranked = sorted(self.partitions.values(), key=furthest_behind)[:MOST_PARTITIONS]
            self.partitions = {each.partition: each for each in ranked}
            self.complete = False


class LagHistory:
    """Lag of roles over time."""

    def __init__(self, now: float) -> None:
        self.since = now
        """When measuring began."""
        self._windows: dict[str, dict[int, deque[LagWindow]]] = {}
        """Role -> window size -> windows, oldest first."""

    def add(self, role: str, now: float, lag: TopicLag) -> None:
        """Add a measurement. Measurements come in the order of time."""
        for size, windows in self._windows.setdefault(role, {size: deque() for size in KEPT}).items():
            window = LagWindow.of(int(now // size * size), lag)
            if not windows or windows[-1].start < window.start:
                windows.append(window)
            else:
                windows[-1].add(window)
            while windows[0].start + size + KEPT[size] <= now:
                windows.popleft()

    def plan(self, start: float | None, end: float | None, now: float) -> WindowPlan:
        """Plan the query of a range; without a start, of all that was measured."""
        end = now if end is None else end
        return plan(min(self.since if start is None else start, end), end, KEPT, now)

    def of(self, role: str, wanted: WindowPlan) -> LagSeries:
        """Return the lag of a role in each step of a plan; None in steps without a measurement."""
        steps = self._steps(role, wanted)
        return LagSeries(
            role,
            None,
            [None if each is None else each.seconds for each in steps],
            [None if each is None else each.records for each in steps],
        )

    def partitions(self, role: str, wanted: WindowPlan) -> tuple[list[LagSeries], int]:
        """Return the lag of those partitions of a role that were furthest behind, and how many at most were
        behind at once."""
        steps = self._steps(role, wanted)
        worst = LagWindow(0)
        for each in steps:
            if each is not None:
                worst.add(each)
        shown = sorted(worst.partitions.values(), key=furthest_behind)
        return [_series(role, each.partition, steps) for each in shown], worst.behind

    def _steps(self, role: str, wanted: WindowPlan) -> list[LagWindow | None]:
        steps: list[LagWindow | None] = [None] * wanted.points
        for window in self._windows.get(role, {}).get(wanted.size, ()):
            if not wanted.start <= window.start < wanted.end:
                continue
            at = (window.start - wanted.start) // wanted.step
            if (step := steps[at]) is None:
                steps[at] = replace(window, partitions=dict(window.partitions))
            else:
                step.add(window)
        return steps


def _series(role: str, partition: int, steps: list[LagWindow | None]) -> LagSeries:
    series = LagSeries(role, partition, [], [])
    for step in steps:
        its = step and step.partitions.get(partition)
        if its is None:  # known to be 0 only if no partition was left out
            none = 0 if step is not None and step.complete else None
            series.lag_seconds.append(none)
            series.lag_records.append(none)
        else:
            series.lag_seconds.append(its.seconds)
            series.lag_records.append(its.records)
    return series


def _larger(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)
