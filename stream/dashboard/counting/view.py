"""What is counted, in memory, so that queries are cheap.

It is loaded from the state, and then shows what every fold has written.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from stream.dashboard.counting.rows import ClusterRow, Counts
from stream.dashboard.counting.windows import HOSTS, TOTALS, Window, WindowPlan, expired, plan

MOST_HOSTS: Final = 200_000
"""Maximum number of host rows in memory. Above it, those with the fewest duplicates are dropped, and read
from the state when needed."""
MOST_CLUSTERS: Final = 100_000
MOST_ANCHORS: Final = 16 << 20
"""Maximum number of clusters in memory, and of the characters of their anchors' URLs."""


@dataclass(slots=True)
class Cluster:
    """The size of a cluster."""

    id: str
    members: int
    """Pages beside the anchor."""
    anchor: str
    """Its URL; empty if it is not known."""


@dataclass(slots=True)
class View:
    """The figures that the page shows."""

    host_in_state: Callable[[Window, str], Counts]
    """Reads the counts of a host and window from the state, if they were dropped from memory."""
    totals: dict[Window, Counts] = field(default_factory=dict)
    hosts: dict[Window, dict[str, Counts]] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    pruned: bool = False
    """Whether host rows were dropped from memory. Rankings of long ranges may then miss small hosts."""
    _host_rows: int = 0
    _anchors: int = 0
    """Characters of the URLs of the clusters' anchors."""

    # Written with every fold.

    def show(self, window: Window, host: str, counts: Counts) -> None:
        """Show the counts of a window and host, or over all hosts."""
        if not host:
            self.totals[window] = counts
            return
        hosts = self.hosts.setdefault(window, {})
        self._host_rows += host not in hosts
        hosts[host] = counts
        if self._host_rows > MOST_HOSTS:
            self._prune_hosts()

    def show_cluster(self, cluster: str, row: ClusterRow) -> None:
        """Show a cluster, unless nothing joined it."""
        if not row.members:
            return
        if (present := self.clusters.get(cluster)) is not None:
            self._anchors -= len(present.anchor)
        self.clusters[cluster] = Cluster(cluster, row.members, row.anchor)
        self._anchors += len(row.anchor)
        if len(self.clusters) > MOST_CLUSTERS or self._anchors > MOST_ANCHORS:
            self._prune_clusters()

    def sweep(self, now: float) -> None:
        """Drop expired windows."""
        for windows, retention in ((self.totals, TOTALS), (self.hosts, HOSTS)):
            for window in [each for each in windows if expired(each, retention[each[1]], now)]:
                gone = windows.pop(window)
                if isinstance(gone, dict):
                    self._host_rows -= len(gone)

    def _prune_clusters(self) -> None:
        # Dropping small clusters is safe: sizes only grow, and a dropped one is shown again when it grows.
        largest = sorted(self.clusters.values(), key=lambda each: -each.members)[: MOST_CLUSTERS // 2]
        characters = list(accumulate(len(each.anchor) for each in largest))
        end = bisect_right(characters, MOST_ANCHORS // 2)
        self.clusters = {each.id: each for each in largest[:end]}
        self._anchors = characters[end - 1] if end else 0

    def _prune_hosts(self) -> None:
        ranked = sorted(
            (
                (counts.verdicts.get("duplicate", 0), w, host)
                for w, hosts in self.hosts.items()
                for host, counts in hosts.items()
            ),
        )
        for _, window, host in ranked[: len(ranked) // 2]:
            del self.hosts[window][host]
        self._host_rows -= len(ranked) // 2
        self.pruned = True

    # Read by the API.

    def plan(self, start: float | None, end: float | None, host: str | None) -> WindowPlan:
        """Plan the query of a range; without a start, from the first verdict to the last."""
        now = time.time()
        if start is None:
            start, end = self.first(now), self.last() if end is None else end
        end = now if end is None else end
        return plan(min(start, end), end, HOSTS if host else TOTALS, now)

    def first(self, default: float) -> float:
        """Return the start of the first window with a verdict, at the finest size still retained."""
        first_start, before = default, 0
        for size in sorted(TOTALS, reverse=True):
            start = min((start for start, each in self.totals if each == size), default=None)
            if start is not None and (not before or start < first_start + before):
                first_start, before = start, size
        return first_start

    def last(self) -> float | None:
        """Return the end of the newest window with a verdict, at the finest size retained; None without
        any."""
        newest: tuple[float, float] | None = None
        for size in sorted(TOTALS, reverse=True):
            start = max((start for start, each in self.totals if each == size), default=None)
            if start is not None and (newest is None or start >= newest[0]):
                newest = start, start + size
        return newest and newest[1]

    def series(self, wanted: WindowPlan, host: str | None) -> list[Counts]:
        """Return the counts of each step of a plan."""
        steps = [Counts() for _ in range(wanted.points)]
        for start in range(wanted.start, wanted.end, wanted.size):
            counts = self._counts((start, wanted.size), host)
            if counts is not None:
                steps[(start - wanted.start) // wanted.step].add(counts)
        return steps

    def ranking(self, start: float, end: float) -> tuple[WindowPlan, dict[str, Counts]]:
        """Return the counts of every host in a range."""
        wanted = plan(start, end, HOSTS, time.time())
        by_host: dict[str, Counts] = {}
        for first in range(wanted.start, wanted.end, wanted.size):
            for host, counts in self.hosts.get((first, wanted.size), {}).items():
                by_host.setdefault(host, Counts()).add(counts)
        return wanted, by_host

    def rate(self, now: float, seconds: int = 30) -> float:
        """Return verdicts per second over the last complete windows that make up `seconds`."""
        end = int(now // 5 * 5)
        windows = ((start, 5) for start in range(end - seconds, end, 5))
        return sum(self.totals[each].pages for each in windows if each in self.totals) / seconds

    def _counts(self, window: Window, host: str | None) -> Counts | None:
        if host is None:
            return self.totals.get(window)
        counts = self.hosts.get(window, {}).get(host)
        return self.host_in_state(window, host) if counts is None and self.pruned else counts
