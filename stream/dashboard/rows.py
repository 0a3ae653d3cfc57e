"""What the tables hold: counts of a window, of a cluster, of a URL, each with the last offset folded into it.

A row belongs to one partition of the verdicts topic and is folded in the order of its offsets. So a verdict
that comes again after a restart is told by its offset, row by row, and counted once whatever was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec

from stream.errors import PageError, RecordError
from stream.messages.verdict import VerdictRecord
from stream.text.url import url_key

NO_HOST: Final = "(no host)"
"""Stands for the host of a page whose URL is missing or malformed."""
PAGES_KEPT: Final = 12
"""Pages of a cluster that a partition remembers for show; all are counted."""
HISTORY_KEPT: Final = 8
"""Verdicts of a URL that are remembered."""
LIKE: Final = ("duplicate", "recrawl")
"""Verdicts with a distance and a similarity."""

Histogram = dict[int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """A verdict and where it stood."""

    partition: int
    offset: int
    seconds: float
    """`decided_at`, seconds since the epoch."""
    host: str
    key: str
    """URL key, or the URL as it is where it has none."""
    verdict: VerdictRecord


class Counts(msgspec.Struct, array_like=True):
    """Verdicts counted by kind, and what is known of them. Adds up."""

    verdicts: dict[str, int] = {}
    distances: dict[str, Histogram] = {}
    """Verdict -> Hamming distance -> pages."""
    similarities: dict[str, Histogram] = {}
    """Verdict -> hundredths of the estimated similarity, rounded down -> pages."""
    reasons: dict[str, int] = {}
    """Why pages were rejected -> pages."""

    def count(self, verdict: VerdictRecord) -> None:
        """Add one verdict."""
        kind = verdict.verdict
        self.verdicts[kind] = self.verdicts.get(kind, 0) + 1
        if verdict.distance is not None:
            _bump(self.distances.setdefault(kind, {}), verdict.distance)
        if verdict.similarity is not None:
            _bump(self.similarities.setdefault(kind, {}), int(verdict.similarity * 100 + 1e-9))
        if kind == "rejected":
            reason = verdict.reason or "unknown"
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def add(self, other: Counts) -> None:
        """Add what another one counted."""
        for kind, pages in other.verdicts.items():
            self.verdicts[kind] = self.verdicts.get(kind, 0) + pages
        for reason, pages in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + pages
        for mine, theirs in ((self.distances, other.distances), (self.similarities, other.similarities)):
            for kind, histogram in theirs.items():
                into = mine.setdefault(kind, {})
                for place, pages in histogram.items():
                    _bump(into, place, pages)

    @property
    def pages(self) -> int:
        """Verdicts of all kinds."""
        return sum(self.verdicts.values())


class WindowRow(msgspec.Struct, array_like=True):
    """Counts of one window, partition and host (or all hosts)."""

    offset: int = -1
    """Offset of the last verdict folded in; earlier ones are redeliveries."""
    counts: Counts = msgspec.field(default_factory=Counts)


class ClusterPage(msgspec.Struct, array_like=True, frozen=True):
    """A page of a cluster, as its verdict told."""

    url: str | None
    id: str
    distance: int | None
    similarity: float | None
    decided_at: str


class ClusterRow(msgspec.Struct, array_like=True):
    """What one partition knows of a cluster that has duplicates."""

    offset: int = -1
    duplicates: int = 0
    anchor: str = ""
    """URL of the anchor."""
    pages: list[ClusterPage] = []
    """The first PAGES_KEPT of this partition."""


class UrlRow(msgspec.Struct, array_like=True):
    """The last verdicts of a URL, newest first."""

    offset: int = -1
    verdicts: list[VerdictRecord] = []


def decode(partition: int, offset: int, value: bytes) -> Event:
    """The verdict at that place of the topic. Raises RecordError."""
    try:
        verdict = _VERDICT.decode(value)
        seconds = _TIME.decode(b'"' + verdict.decided_at.encode() + b'"').timestamp()
    except msgspec.DecodeError as error:
        raise RecordError(f"verdicts[{partition}] offset {offset}: {error}") from error
    key = normal(verdict.url or "")
    return Event(partition, offset, seconds, host_of(key), key, verdict)


def normal(url: str) -> str:
    """The URL's key, by which equal URLs are known; the URL itself where it is malformed."""
    try:
        return url_key(url)
    except PageError:
        return url


def host_of(url: str) -> str:
    """The host that figures of a URL are counted under."""
    try:
        return urlsplit(url).hostname or NO_HOST
    except ValueError:
        return NO_HOST


def fold_window(row: WindowRow, events: Iterable[Event]) -> Counts:
    """Fold in what is new to the row; what that was."""
    news = Counts()
    for event in events:
        if event.offset > row.offset:
            news.count(event.verdict)
            row.offset = event.offset
    row.counts.add(news)
    return news


def fold_cluster(row: ClusterRow, events: Iterable[Event]) -> int:
    """Fold duplicates in; how many were new to the row."""
    new = 0
    for event in events:
        if event.offset <= row.offset:
            continue
        row.offset, verdict = event.offset, event.verdict
        row.duplicates += 1
        row.anchor = verdict.duplicate_of.url if verdict.duplicate_of else row.anchor
        if len(row.pages) < PAGES_KEPT:
            row.pages.append(
                ClusterPage(verdict.url, verdict.id, verdict.distance, verdict.similarity, verdict.decided_at)
            )
        new += 1
    return new


def fold_url(row: UrlRow, events: Iterable[Event]) -> None:
    """Put new verdicts of the URL first."""
    for event in events:
        if event.offset > row.offset:
            row.offset = event.offset
            row.verdicts = [event.verdict, *row.verdicts[: HISTORY_KEPT - 1]]


def _bump(histogram: Histogram, place: int, pages: int = 1) -> None:
    histogram[place] = histogram.get(place, 0) + pages


_VERDICT = msgspec.json.Decoder(VerdictRecord)
_TIME = msgspec.json.Decoder(datetime)
