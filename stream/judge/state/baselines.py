"""Stored pages as values: baselines of URLs, and records of anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import integers
from stream.judge.state.page_log import URL_DIGEST, LoggedPages
from stream.messages.byte_strings import StringColumn


@dataclass(frozen=True, slots=True)
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
    url_bytes: int
    """Size of its URL."""
    _pages: LoggedPages
    _place: int
    skipped: int = 0
    """Mask of tables whose full bucket the anchor did not enter, and of reserves that it did, as in
    `Decisions`."""

    @property
    def anchor(self) -> int | None:
        """Number of the anchor if the page was unique."""
        return self.number if self.page == self.cluster else None

    @property
    def url(self) -> str:
        """The page's URL, which may be read for it."""
        return self._pages.url(self._place)

    @property
    def url_digest(self) -> bytes:
        """The digest of its URL."""
        return self._pages.words[self._place, URL_DIGEST].astype("<u8").tobytes()


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

    def baseline(self, place: int) -> Baseline:
        """Return the anchor at index `place` as the baseline of its URL."""
        page, number = int(self.page[place]), int(self.number[place])
        return Baseline(
            page=page,
            cluster=page,
            fingerprint=integers(self.fingerprint[place : place + 1])[0],
            sketch=self.sketch[place],
            number=number,
            cluster_anchor=number,
            url_bytes=int(self.url_bytes[place]),
            _pages=self._pages,
            _place=place,
            skipped=int(self.skipped[place]),
        )
