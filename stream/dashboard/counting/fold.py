"""Sums of verdicts by the windows and hosts in which they are counted."""

from __future__ import annotations

from stream.dashboard.counting.rows import Counts
from stream.dashboard.counting.verdict_columns import Sum
from stream.dashboard.counting.windows import HOSTS, TOTALS, Window, expired


def by_window(news: Sum, now: float) -> dict[Window, Counts]:
    """Return the counts of each window that is still kept."""
    windows: dict[Window, Counts] = {}
    for tick, shape, pages in news.totals():
        seconds = tick * min(TOTALS)
        for size, retention in TOTALS.items():
            window = seconds // size * size, size
            if not expired(window, retention, now):
                windows.setdefault(window, Counts()).count(shape, pages)
    return windows


def by_host(news: Sum, now: float) -> dict[tuple[Window, str], Counts]:
    """Return the counts of each window and host that is still kept."""
    minutes: dict[tuple[int, str], Counts] = {}
    for minute, host, shape, pages in news.hosts():
        minutes.setdefault((minute, host), Counts()).count(shape, pages)
    windows: dict[tuple[Window, str], Counts] = {}
    for (minute, host), counts in minutes.items():
        seconds = minute * min(HOSTS)
        for size, retention in HOSTS.items():
            window = seconds // size * size, size
            if not expired(window, retention, now):
                windows.setdefault((window, host), Counts()).add(counts)
    return windows
