"""Reads the pages of a state: anchors, duplicates, and the baselines of URLs (rules 20, 23 and 24)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.fingerprint.lanes import words_of
from stream.fingerprint.row import NO_DIGEST
from stream.fingerprint.scheme import Scheme
from stream.judge.state.baselines import Anchors, Baseline, BaselinePages
from stream.judge.state.forgotten_pages import ForgottenPages
from stream.judge.state.meta import Meta, stored_meta
from stream.judge.state.page_log import (
    HEAD,
    OF_ANCHOR,
    URL_DIGEST,
    LoggedPages,
    PageLog,
    record_words,
)
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.references import ANCHOR, REFERENCE, are_there, each_of
from stream.judge.state.window import Window
from stream.messages.byte_strings import StringColumn
from stream.tables.arrays import distinct
from stream.tables.store.anchors import is_marked_dead
from stream.tables.store.rocks import ANCHORS, DUPLICATES, URLS, Store


class StateReader:
    """Read access to the pages in a store."""

    def __init__(self, store: Store, scheme: Scheme) -> None:
        """Raises StateError for a store of another format, before anything of it is read."""
        meta = stored_meta(store)
        self.store = store
        self._prints = words_of(scheme.width)
        self._words = words = record_words(scheme.width, scheme.sketch_bytes)
        self._identifying = np.r_[URL_DIGEST, HEAD + self._prints : words]
        """The words of a page that say what it was: the digest of its URL, and its sketch."""
        self._anchors = PageLog(store, ANCHORS, words)
        self._duplicates = PageLog(store, DUPLICATES, words + OF_ANCHOR)
        self._urls_ahead: dict[bytes, bytes] = {}
        """References that may not be in the store yet."""
        self.window = self._window(meta)
        """None without a lifetime."""
        self.forgotten: Final = ForgottenPages(store)

    def _window(self, meta: Meta | None) -> Window | None:
        if meta is None or meta.window is None:
            return None
        anchors, duplicates = self.page_logs
        return Window(self.store, meta.window, lambda: PageNumbers(anchors.first, duplicates.first))

    @property
    def first(self) -> PageNumbers:
        """The numbers of the first anchor and of the first duplicate: those before them have expired, or are
        gone."""
        return PageNumbers(self._anchors.first, self._duplicates.first)

    def by_page(self, page: int) -> Baseline | None:
        """Return the anchor or duplicate with this page id, or None. With a lifetime, this may read all
        pages, because carried ones stand among younger ones."""
        ascending = self.window is None
        if (number := self._anchors.number_of(page, ascending=ascending)) is not None:
            baseline = self.anchor(number)
        else:
            number = self._duplicates.number_of(page, ascending=ascending)
            if number is None:
                return None
            baseline = self._baselines(np.array([number]), np.zeros(1, np.bool_))[0]
        return self._unless_forgotten(baseline)

    def _unless_forgotten(self, page: Baseline) -> Baseline | None:
        is_erased = not page.url and page.url_digest == NO_DIGEST
        among = self.forgotten.among(np.array([page.number]), is_anchor=page.anchor is not None)
        return None if is_erased or among[0] else page

    @property
    def page_logs(self) -> tuple[PageLog, PageLog]:
        """The logs of anchors and of duplicates."""
        return self._anchors, self._duplicates

    def anchor_of(self, page: Baseline) -> Baseline | None:
        """Return the anchor of a page's cluster, dead or alive; None if it has expired or is forgotten."""
        if page.cluster_anchor < self.first.anchors:
            return None
        return self._unless_forgotten(self.anchor(page.cluster_anchor))

    def anchor(self, number: int) -> Baseline:
        """Return an anchor."""
        return self._baselines(np.array([number]), np.ones(1, np.bool_))[0]

    def urls(
        self, pages: NDArray[np.int64], numbers: NDArray[np.int64], duplicate: NDArray[np.bool_]
    ) -> StringColumn:
        """Return the URLs of m pages, given by ids and by their numbers, among duplicates or else among
        anchors. Raises StateError if one of these has another id."""
        columns, place = [StringColumn.none(0)], np.zeros(len(pages), np.int64)
        for log, which in ((self._anchors, ~duplicate), (self._duplicates, duplicate)):
            here = np.flatnonzero(which)
            some, at = np.unique(numbers[here], return_inverse=True)
            records = log.pages(some, keep_urls=True)
            other = np.flatnonzero(records.words[at, 0].astype(np.int64) != pages[here])
            if len(other):
                missing, number = int(pages[here[other[0]]]), int(numbers[here[other[0]]])
                raise StateError(
                    f"state directory {self.store.path}: has no page with the id {missing} and the number"
                    f" {number}"
                )
            place[here] = sum(len(each.sizes) for each in columns) + at
            columns.append(records.urls(np.arange(len(some))))
        return StringColumn.joined(columns).take(place)

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        """Return the records of the distinct anchors among `numbers`."""
        numbers = distinct(numbers)
        pages = self._anchors.pages(numbers)
        end = HEAD + self._prints
        return Anchors(
            number=numbers,
            page=pages.words[:, 0].astype(np.int64),
            fingerprint=self.fingerprints(pages),
            skipped=pages.masks(),
            sketch=pages.words[:, end:].copy(),
            _pages=pages,
        )

    def fingerprints(self, pages: LoggedPages) -> NDArray[np.uint64]:
        """Return the fingerprints (m, lanes) of pages."""
        return pages.words[:, HEAD : HEAD + self._prints]

    def cluster_anchors(self, duplicates: LoggedPages) -> NDArray[np.int64]:
        """Return the present number of the anchor of each duplicate's cluster (m,), which may be dead."""
        anchors = duplicates.words[:, -1].astype(np.int64)
        return anchors if self.window is None else self.window.forwarding.present(anchors)

    def baselines(self, url: bytes) -> list[Baseline]:
        """Return the baselines of a URL, given by its digest, newest first."""
        pages = self.resolved(self.references([url]).get(url, []))
        return [pages[at] for at in range(len(pages))]

    def references(self, urls: list[bytes]) -> dict[bytes, list[bytes]]:
        """Return digest of a URL -> references to its baselines, newest first, for the URLs that have any."""
        return {
            key: [value] if len(value) == REFERENCE.itemsize else each_of(value)
            for key, value in self.stored_references(urls).items()
        }

    def resolved(self, references: Sequence[bytes]) -> BaselinePages:
        """Return the pages that references name."""
        fields = np.frombuffer(b"".join(references), REFERENCE)
        return self._baselines(fields["number"].astype(np.int64), fields["kind"] == ANCHOR)

    def _baselines(self, numbers: NDArray[np.int64], is_anchor: NDArray[np.bool_]) -> BaselinePages:
        """Return the pages with these numbers (k,), among anchors or else among duplicates."""
        place, url_bytes, anchors = np.zeros(len(numbers), np.int64), np.zeros_like(numbers), numbers.copy()
        words, logged = np.zeros((len(numbers), self._words), np.uint64), list[LoggedPages]()
        skipped = np.zeros(len(numbers), np.uint64)
        for log, which in ((self._anchors, is_anchor), (self._duplicates, ~is_anchor)):
            here = np.flatnonzero(which)
            some = distinct(numbers[here])
            pages, at = log.pages(some), np.searchsorted(some, numbers[here])
            words[here] = pages.words[at, : self._words]
            place[here], url_bytes[here] = at, pages.url_bytes[at]
            if log is self._anchors:
                skipped[here] = pages.masks()[at]
            else:
                anchors[here] = self.cluster_anchors(pages)[at]
            logged.append(pages)
        page, second = (words[:, each].astype(np.int64) for each in range(2))
        end = HEAD + self._prints
        return BaselinePages(
            page=page,
            cluster=np.where(is_anchor, page, second),
            fingerprint=words[:, HEAD:end].copy(),
            sketch=words[:, end:].copy(),
            number=numbers,
            cluster_anchor=anchors,
            skipped=skipped,
            url_bytes=url_bytes,
            source=np.where(is_anchor, 0, 1),
            place=place,
            logged=logged,
        )

    def stored_references(self, urls: list[bytes]) -> dict[bytes, bytes]:
        """Return digest of a URL -> references to its baselines back to back, for the URLs that have any."""
        values, ahead = self.store.get(URLS, urls), self._urls_ahead
        if ahead and not ahead.keys().isdisjoint(urls):
            values = [ahead.get(url, value) for url, value in zip(urls, values, strict=True)]
        present = {url: value for url, value in zip(urls, values, strict=True) if value is not None}
        return present if self.window is None else self.unexpired(present, self.first)

    def unexpired(self, references: dict[bytes, bytes], first: PageNumbers) -> dict[bytes, bytes]:
        """Leave out references to pages that have expired, and to superseded anchors if all newer baselines
        have (rule 23)."""
        if not references:
            return references
        values = b"".join(references.values())
        fields, live = np.frombuffer(values, REFERENCE), are_there(values, first)
        if live.all():
            return references
        kept, end = dict[bytes, bytes](), 0
        for url, value in references.items():
            start, end = end, end + len(value) // REFERENCE.itemsize
            if not live[start:end].all():
                value = self._without_superseded(fields[start:end][live[start:end]]).tobytes()
            if value:
                kept[url] = value
        return kept

    def _without_superseded(self, references: NDArray[Any]) -> NDArray[Any]:
        """Leave out the superseded anchors with which references to the baselines of a URL begin."""
        place = 0
        for kind, number in references.tolist():
            if kind != ANCHOR or self.is_alive(number):
                break
            place += 1
        return references[place:]

    def is_alive(self, anchor: int) -> bool:
        """Whether an anchor is alive: it was not superseded, and has not expired."""
        if anchor < self.first.anchors:
            return False
        return not is_marked_dead(self.store, anchor)
