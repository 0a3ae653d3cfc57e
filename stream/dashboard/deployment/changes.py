"""Restarts and rebalances: what happened to the deployment's processes, for marks on charts over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from stream.dashboard.answers import ProcessChange
from stream.dashboard.deployment.groups import ConsumerGroup

KEPT: Final = 500
"""Changes in memory. Beyond, the oldest are dropped, and counted."""
UNSETTLED: Final = ("PreparingRebalance", "CompletingRebalance")
"""States of a group in which assignments are not complete yet."""


class ChangeLog:
    """The latest changes, as one look after the other finds them."""

    def __init__(self, now: float) -> None:
        """`now` is the time at which this dashboard was started."""
        self.since = now
        self.dropped_until: float | None = None
        """Time of the newest change that was dropped; None without any."""
        self._changes: deque[ProcessChange] = deque()
        self._groups: dict[str, ConsumerGroup] = {}
        self._unsettled: dict[str, float] = {}
        """Role -> when its group was first seen to rebalance."""
        self._started: dict[str, float] = {}
        """URL of a process -> when it was started."""
        self._add(ProcessChange(now, "dashboard", "start", "this dashboard was started"))

    def saw_group(self, role: str, group: ConsumerGroup, now: float) -> None:
        """Compare a group with the last look at it, once it has settled."""
        if group.state in UNSETTLED:
            self._unsettled.setdefault(role, now)
            return
        began = self._unsettled.pop(role, now)
        before, self._groups[role] = self._groups.get(role), group
        if before is not None and (words := _difference(before, group)):
            self._add(ProcessChange(began, role, "rebalance", words))

    def saw_process(self, role: str, url: str, started: float | None, now: float) -> None:
        """Note when a process was started, by what it says itself; None if it does not say."""
        if started is not None and self._started.get(url) != started:
            self._started[url] = started
            # Its clock may be ahead of ours.
            self._add(
                ProcessChange(min(started, now), role, "start", f"{url.partition('://')[2]} was started")
            )

    @property
    def first(self) -> float:
        """Time of the oldest change."""
        return min(each.at for each in self._changes)

    def between(self, start: float, end: float) -> list[ProcessChange]:
        """Return the changes in [start, end), oldest first."""
        return sorted((each for each in self._changes if start <= each.at < end), key=lambda each: each.at)

    def _add(self, change: ProcessChange) -> None:
        self._changes.append(change)
        while len(self._changes) > KEPT:
            dropped = self._changes.popleft().at
            self.dropped_until = max(dropped, self.dropped_until or dropped)


def _difference(before: ConsumerGroup, after: ConsumerGroup) -> str:
    """Say in words how a group changed; empty if it did not."""
    old, new = ({each.id: each.partitions for each in group.members} for group in (before, after))
    joined, departed = len(new.keys() - old.keys()), len(old.keys() - new.keys())
    if not (joined or departed or old != new):
        return ""
    moves = [f"{joined} joined" if joined else "", f"{departed} left" if departed else ""]
    words = " and ".join(filter(None, moves)) or "partitions moved"
    return f"{words}; {_processes(new.keys())} in the group"


def _processes(members: Iterable[str]) -> str:
    count = len(list(members))
    return "1 process" if count == 1 else f"{count or 'no'} processes"
