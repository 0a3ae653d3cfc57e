"""Rows of the tables: counts of a window or of a cluster, each with the last offset folded into it.

A row belongs to one partition of the verdicts topic, and verdicts are folded into it in the order of offsets.
Redelivered verdicts are recognised by their offset in each row, so each verdict counts once.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from stream.dashboard.counting.verdict_columns import PAGES_KEPT, ClusterNews, Shape
from stream.messages.verdict import VerdictRecord

URLS_KEPT: Final = 4096
"""Characters of URLs that are stored per cluster and partition for display. A row is written again with each
fold that has news of it, and many rows are in memory meanwhile."""
Histogram = dict[int, int]
K = TypeVar("K")


class Counts(msgspec.Struct, array_like=True, gc=False):
    """Verdicts counted by kind, distance, similarity and reason. Counts can be added."""

    verdicts: dict[str, int] = {}
    distances: dict[str, Histogram] = {}
    """Verdict -> Hamming distance -> pages."""
    similarities: dict[str, Histogram] = {}
    """Verdict -> hundredths of the estimated similarity, rounded down -> pages."""
    reasons: dict[str, int] = {}
    """Reject reason -> pages."""

    def count(self, shape: Shape, pages: int) -> None:
        """Add `pages` verdicts of a shape."""
        kind, distance, hundredths, reason = shape
        self.verdicts[kind] = self.verdicts.get(kind, 0) + pages
        if distance is not None:
            _bump(self.distances.setdefault(kind, {}), distance, pages)
        if hundredths is not None:
            _bump(self.similarities.setdefault(kind, {}), hundredths, pages)
        if reason is not None:
            _bump(self.reasons, reason, pages)

    def add(self, other: Counts) -> None:
        """Add the counts of another one."""
        for kind, pages in other.verdicts.items():
            self.verdicts[kind] = self.verdicts.get(kind, 0) + pages
        for reason, pages in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + pages
        for own, others in ((self.distances, other.distances), (self.similarities, other.similarities)):
            for kind, histogram in others.items():
                into = own.setdefault(kind, {})
                for place, pages in histogram.items():
                    _bump(into, place, pages)

    def copy(self) -> Counts:
        """Return an independent copy."""
        return Counts(
            self.verdicts.copy(),
            {kind: histogram.copy() for kind, histogram in self.distances.items()},
            {kind: histogram.copy() for kind, histogram in self.similarities.items()},
            self.reasons.copy(),
        )

    def __add__(self, other: Counts) -> Counts:
        total = self.copy()
        total.add(other)
        return total

    @property
    def pages(self) -> int:
        """Number of verdicts of all kinds."""
        return sum(self.verdicts.values())


class WindowRow(msgspec.Struct, array_like=True, gc=False):
    """Counts of one window, partition and host (or all hosts)."""

    offset: int = -1
    """Offset of the last verdict folded into this row."""
    counts: Counts = msgspec.field(default_factory=Counts)


class ClusterPage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A page of a cluster, from its verdict."""

    url: str | None
    id: str
    distance: int | None
    """To the anchor, as the similarity is; None for an orphan, whose verdict names its own baseline."""
    similarity: float | None
    decided_at: str


class ClusterRow(msgspec.Struct, array_like=True, gc=False):
    """The members of a cluster in one partition, beside its anchor."""

    offset: int = -1
    members: int = 0
    """Pages that joined it, as duplicates or judged again (rule 22)."""
    anchor: str = ""
    """URL of the anchor; empty as long as no verdict of the partition names it."""
    pages: list[ClusterPage] = []
    """The first PAGES_KEPT pages of this partition, or fewer if their URLs are longer than URLS_KEPT."""


class UrlRow(msgspec.Struct, array_like=True):
    """The last verdicts of a URL, newest first, in the format of earlier versions."""

    offset: int = -1
    verdicts: list[VerdictRecord] = []


def fold_window(row: WindowRow, news: Counts, last: int) -> bool:
    """Add the counts of verdicts up to offset `last`. Returns False if the row contains them already."""
    if row.offset >= last:
        return False
    row.counts.add(news)
    row.offset = last
    return True


def fold_cluster(row: ClusterRow, news: ClusterNews, last: int) -> bool:
    """Add members up to offset `last`. Returns False if the row contains them already."""
    if row.offset >= last:
        return False
    row.offset = last
    row.members += news.members
    row.anchor = row.anchor if news.anchor is None else news.anchor
    room = URLS_KEPT - sum(len(each.url or "") for each in row.pages)
    for each in news.pages[: PAGES_KEPT - len(row.pages)]:
        room -= len(each.url or "")
        if room < 0:
            break
        distances = (each.distance, each.similarity) if each.verdict == "duplicate" else (None, None)
        row.pages.append(ClusterPage(each.url, each.id, *distances, each.decided_at))
    return True


def _bump(places: dict[K, int], place: K, pages: int = 1) -> None:
    places[place] = places.get(place, 0) + pages
