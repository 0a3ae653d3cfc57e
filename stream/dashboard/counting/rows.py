"""What is counted: verdicts of a window, and members of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from stream.dashboard.counting.verdict_columns import PAGES_KEPT, ClusterNews, Shape

URLS_KEPT: Final = 4096
"""Characters of URLs that are stored per cluster for display. A row is written again with each fold that has
news of it, and many rows are in memory meanwhile."""
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

    @property
    def pages(self) -> int:
        """Number of verdicts of all kinds."""
        return sum(self.verdicts.values())


class ClusterPage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A page of a cluster, from its verdict."""

    url: str | None
    id: str
    distance: int | None
    """To the anchor, as the similarity is; None for an orphan, whose verdict names its own baseline."""
    similarity: float | None
    decided_at: str


class ClusterRow(msgspec.Struct, array_like=True, gc=False):
    """The members of a cluster, beside its anchor."""

    members: int = 0
    """Pages that joined it, as duplicates or judged again (rule 22)."""
    anchor: str = ""
    """URL of the anchor; empty as long as no verdict names it."""
    pages: list[ClusterPage] = []
    """The first PAGES_KEPT pages, or fewer if their URLs are longer than URLS_KEPT."""

    def add(self, news: ClusterNews) -> None:
        """Add members."""
        self.members += news.members
        self.anchor = self.anchor if news.anchor is None else news.anchor
        room = URLS_KEPT - sum(len(each.url or "") for each in self.pages)
        for each in news.pages[: PAGES_KEPT - len(self.pages)]:
            room -= len(each.url or "")
            if room < 0:
                break
            distances = (each.distance, each.similarity) if each.verdict == "duplicate" else (None, None)
            self.pages.append(ClusterPage(each.url, each.id, *distances, each.decided_at))

    def erase(self, names: Callable[[str | None, str], bool], cluster: str) -> bool:
        """Drop what it says of the pages that `names`, given URL and id, is true of. Returns whether it said
        anything of any."""
        pages = [each for each in self.pages if not names(each.url, each.id)]
        is_named = names(self.anchor, cluster)
        changed = is_named or len(pages) < len(self.pages)
        self.anchor, self.pages = "" if is_named else self.anchor, pages
        return changed


def _bump(places: dict[K, int], place: K, pages: int = 1) -> None:
    places[place] = places.get(place, 0) + pages
