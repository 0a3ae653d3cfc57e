"""Sums over partitions of what the tables hold, in memory, so that a look costs nothing.

The tables hold a row for each partition, window and host; an operator asks about all partitions. The view is
loaded from the tables once they are recovered, and then told of everything that is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from stream.dashboard.rows import ClusterRow, Counts
from stream.dashboard.windows import HOSTS, TOTALS, Plan, plan

Window = tuple[int, int]
"""Start and size in seconds."""
MOST_HOSTS: Final = 200_000
"""Rows of hosts kept in memory; beyond it, those with the fewest duplicates are asked of the tables again."""
MOST_CLUSTERS: Final = 100_000


@dataclass(slots=True)
class Cluster:
    """A cluster's size, over all partitions."""

    id: str
    duplicates: int
    anchor: str


@dataclass(slots=True)
class View:
    """What the page shows. One writer, the Faust agent; everything runs in one event loop."""

    host_in_tables: Callable[[Window, str], Counts] = lambda _window, _host: Counts()
    """A host's counts of a window from the tables, for what was dropped from memory."""
    cluster_in_tables: Callable[[str], list[ClusterRow]] = lambda _cluster: []
    totals: dict[Window, Counts] = field(default_factory=dict)
    hosts: dict[Window, dict[str, Counts]] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    revision: int = 0
    """Raised with every change."""
    pruned: bool = False
    """Whether rows of hosts were dropped from memory: rankings of long ranges may then miss small hosts."""
    _host_rows: int = 0
    _clusters_pruned: bool = False

    # Written by the agent.

    def count_total(self, window: Window, news: Counts) -> None:
        """Add to a window of all hosts."""
        self.totals.setdefault(window, Counts()).add(news)

    def count_host(self, window: Window, host: str, news: Counts, *, loading: bool = False) -> None:
        """Add to a window of a host. `news` is in the tables already."""
        hosts = self.hosts.setdefault(window, {})
        known = hosts.get(host)
        if known is not None:
            known.add(news)
            return
        self._host_rows += 1
        hosts[host] = (self.host_in_tables(window, host) if self.pruned and not loading else news).copy()
        if self._host_rows > MOST_HOSTS:
            self._prune_hosts()

    def count_cluster(self, cluster: str, duplicates: int, anchor: str, *, loading: bool = False) -> None:
        """Add duplicates to a cluster. They are in the tables already."""
        known = self.clusters.get(cluster)
        if known is None:
            if self._clusters_pruned and not loading:
                duplicates = sum(row.duplicates for row in self.cluster_in_tables(cluster))
            self.clusters[cluster] = Cluster(cluster, duplicates, anchor)
        else:
            known.duplicates += duplicates
        if len(self.clusters) > MOST_CLUSTERS:
            # Sizes only grow, and one that grows again is counted anew from the tables: the largest stay.
            largest = sorted(self.clusters.values(), key=lambda each: -each.duplicates)
            self.clusters = {each.id: each for each in largest[: MOST_CLUSTERS // 2]}
            self._clusters_pruned = True

    def sweep(self, now: float) -> None:
        """Forget windows whose time is over."""
        for windows, kept in ((self.totals, TOTALS), (self.hosts, HOSTS)):
            for start, size in [w for w in windows if w[0] + w[1] + kept[w[1]] <= now]:
                gone = windows.pop((start, size))
                if isinstance(gone, dict):
                    self._host_rows -= len(gone)

    def clear(self) -> None:
        """Forget everything: the tables are read again."""
        self.totals, self.hosts, self.clusters = {}, {}, {}
        self.pruned, self._clusters_pruned, self._host_rows = False, False, 0

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

    def plan(self, start: float | None, end: float | None, host: str | None) -> Plan:
        """How to answer for a range; without a start, from the first verdict there is to the last."""
        now = time.time()
        if start is None:
            start, end = self.first(now), self.last() if end is None else end
        end = now if end is None else end
        return plan(min(start, end), end, HOSTS if host else TOTALS, now)

    def first(self, default: float) -> float:
        """When the first window begins that holds a verdict, as finely as is known."""
        found, before = default, 0
        for size in sorted(TOTALS, reverse=True):
            start = min((start for start, each in self.totals if each == size), default=None)
            if start is not None and (not before or start < found + before):
                found, before = start, size
        return found

    def last(self) -> float | None:
        """When the newest window ends that holds a verdict, as finely as is known; None without any."""
        found: tuple[float, float] | None = None
        for size in sorted(TOTALS, reverse=True):
            start = max((start for start, each in self.totals if each == size), default=None)
            if start is not None and (found is None or start >= found[0]):
                found = start, start + size
        return found and found[1]

    def series(self, wanted: Plan, host: str | None) -> list[Counts]:
        """Counts of each step."""
        steps = [Counts() for _ in range(wanted.points)]
        for start in range(wanted.start, wanted.end, wanted.size):
            found = self._counts((start, wanted.size), host)
            if found is not None:
                steps[(start - wanted.start) // wanted.step].add(found)
        return steps

    def ranking(self, start: float, end: float) -> tuple[Plan, dict[str, Counts]]:
        """Counts of every host in a range."""
        wanted = plan(start, end, HOSTS, time.time())
        found: dict[str, Counts] = {}
        for first in range(wanted.start, wanted.end, wanted.size):
            for host, counts in self.hosts.get((first, wanted.size), {}).items():
                found.setdefault(host, Counts()).add(counts)
        return wanted, found

    def rate(self, now: float, seconds: int = 30) -> float:
        """Verdicts a second, over the last whole windows that make up `seconds`."""
        end = int(now // 5 * 5)
        return sum(each.pages for each in self._windows(range(end - seconds, end, 5), 5)) / seconds

    def _windows(self, starts: range, size: int) -> Iterator[Counts]:
        for start in starts:
            if found := self.totals.get((start, size)):
                yield found

    def _counts(self, window: Window, host: str | None) -> Counts | None:
        if host is None:
            return self.totals.get(window)
        found = self.hosts.get(window, {}).get(host)
        return self.host_in_tables(window, host) if found is None and self.pruned else found
