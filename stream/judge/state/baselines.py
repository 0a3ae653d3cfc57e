"""Stored pages as values: baselines of URLs, and records of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import integers
from stream.judge.state.page_log import URL_DIGEST, LoggedPages
from stream.messages.byte_strings import StringColumn


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """One of the last different pages of a URL, which are anchors or duplicates of one, or such a page looked
    up by its id."""

    page: int
    cluster: int
    fingerprint: int
    sketch: NDArray[np.uint64]
    number: int
    """Its number among anchors or, for a duplicate, among duplicates."""
    cluster_anchor: int
    """Number of its cluster's anchor, which may be dead."""
    skipped: int
    """Mask of tables whose full bucket the anchor did not enter, and of reserves that it did, as in
    `Decisions`."""
    url: str
    url_digest: bytes

    @property
    def anchor(self) -> int | None:
        """Number of the anchor if the page was unique."""
        return self.number if self.page == self.cluster else None


@dataclass(frozen=True, slots=True, eq=False)
class BaselinePages:
    """Records of k pages as `Baseline` has one."""

    page: NDArray[np.int64]
    cluster: NDArray[np.int64]
    fingerprint: NDArray[np.uint64]
    """(k, lanes)."""
    sketch: NDArray[np.uint64]
    """(k, lanes)."""
    number: NDArray[np.int64]
    cluster_anchor: NDArray[np.int64]
    skipped: NDArray[np.uint64]
    url_bytes: NDArray[np.int64]
    """Sizes of the URLs."""
    source: NDArray[np.int64]
    """Which of `logged` each page is from."""
    place: NDArray[np.int64]
    """Its index there."""
    logged: list[LoggedPages]

    @classmethod
    def joined(cls, parts: Sequence[BaselinePages]) -> BaselinePages:
        """The pages of one part or more, in order."""
        if len(parts) == 1:
            return parts[0]
        logged = [pages for part in parts for pages in part.logged]
        ends = accumulate(len(part.logged) for part in parts)
        source = [part.source + end - len(part.logged) for part, end in zip(parts, ends, strict=True)]
        columns = {
            each.name: np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(cls)
            if each.name not in ("source", "logged")
        }
        return cls(**columns, source=np.concatenate(source), logged=logged)

    def __len__(self) -> int:
        return len(self.page)

    def __getitem__(self, at: int) -> Baseline:
        digest = self.logged[self.source[at]].words[self.place[at], URL_DIGEST]
        return Baseline(
            page=int(self.page[at]),
            cluster=int(self.cluster[at]),
            fingerprint=integers(self.fingerprint[at : at + 1])[0],
            sketch=self.sketch[at],
            number=int(self.number[at]),
            cluster_anchor=int(self.cluster_anchor[at]),
            skipped=int(self.skipped[at]),
            url=self.urls(np.array([at])).text(0),
            url_digest=digest.astype("<u8").tobytes(),
        )

    def urls(self, places: NDArray[np.int64]) -> StringColumn:
        """Return the URLs (m,) of the pages at these indexes."""
        source, at = self.source[places], np.zeros(len(places), np.int64)
        columns, first = [StringColumn.none(0)], 0
        for number, pages in enumerate(self.logged):
            here = np.flatnonzero(source == number)
            at[here] = first + np.arange(len(here))
            columns.append(pages.urls(self.place[places[here]]))
            first += len(here)
        return StringColumn.joined(columns).take(at)


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """Records of m distinct anchors, ascending by number."""

    number: NDArray[np.int64]
    page: NDArray[np.int64]
    fingerprint: NDArray[np.uint64]
    skipped: NDArray[np.uint64]
    sketch: NDArray[np.uint64]
    """(m, lanes)."""
    _pages: LoggedPages

    def url(self, place: int) -> str:
        """Return the URL of the anchor at index `place`."""
        return self._pages.url(place)

    def urls(self, places: NDArray[np.int64]) -> StringColumn:
        """Return the URLs (k,) of the anchors at these indexes."""
        return self._pages.urls(places)

    @property
    def url_bytes(self) -> NDArray[np.int64]:
        """(m,): sizes of the URLs."""
        return self._pages.url_bytes

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indexes (k,) of these anchors. For anchors that are not here, indexes are arbitrary."""
        if not len(self.number):
            return np.zeros(len(numbers), np.int64)
        places: NDArray[np.int64]
        first, span = int(self.number[0]), int(self.number[-1] - self.number[0]) + 1
        if span == len(self.number):
            return numbers - first
        if span > len(numbers):
            return self.number.searchsorted(numbers)
        table = np.zeros(span, np.int64)  # spam: very many pages find few anchors
        table[self.number - first] = np.arange(len(self.number))
        places = table.take(numbers - first, mode="clip")
        return places

    def has(self, numbers: NDArray[np.int64]) -> bool:
        """Return whether all of these anchors are here."""
        if not len(self.number):
            return not len(numbers)
        return bool(np.all(self.number.take(self.places(numbers), mode="clip") == numbers))
