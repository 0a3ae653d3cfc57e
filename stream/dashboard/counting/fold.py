"""Sums of verdicts by the windows and hosts in which they are counted."""

from __future__ import annotations

from collections.abc import Mapping

from stream.dashboard.counting.rows import Counts
from stream.dashboard.counting.verdict_columns import Sum
from stream.dashboard.counting.windows import Window, expired


def by_window(
    news: Sum, kept: Mapping[int, int], now: float, *, of_hosts: bool
) -> dict[tuple[Window, str], Counts]:
    """Return the counts of each window that is still kept, and of each host if `of_hosts`. `kept`: window
    size -> retention."""
    finest: dict[tuple[int, str], Counts] = {}
    for start, host, shape, pages in news.pages(min(kept), of_hosts=of_hosts):
        finest.setdefault((start, host), Counts()).count(shape, pages)
    windows: dict[tuple[Window, str], Counts] = {}
    for (start, host), counts in finest.items():
        for size, retention in kept.items():
            window = start // size * size, size
            if not expired(window, retention, now):
                windows.setdefault((window, host), Counts()).add(counts)
    return windows
