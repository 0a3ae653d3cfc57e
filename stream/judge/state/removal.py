"""Removes what is gone of a state from RocksDB: groups of pages, and URLs whose pages are all gone.

Nothing depends on what is removed when: readers, and the digest of a state, leave out what is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from stream.failpoints import reach
from stream.judge.state.page_log import PageLog
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.references import all_gone
from stream.tables.store.contents import hash_words
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import ANCHORS, DUPLICATES, URLS, Store
from stream.tables.tables import REMOVED_AT_ONCE

SWEPT_A_PAGE: Final = 1
"""URLs that are looked at for each page that is added, carried ones included; each takes .7 us, beside the
judge. With two, a fifth of the URLs that are kept would have no page, not two fifths; but the judge's process
took a tenth more processor time."""
LEAST_SWEPT: Final = 1 << 10
SWEPT_AT_ONCE: Final = 1 << 16
"""Least and most URLs that are looked at in one step. The most take 30 ms."""


class Removal:
    """What is removed from a store, step by step. One thread uses it."""

    def __init__(self, store: Store, anchors: PageLog, duplicates: PageLog) -> None:
        self._store = store
        self._logs = {ANCHORS: anchors, DUPLICATES: duplicates}
        self._reclaiming = Reclaiming(store)
        self._sweep = _Sweep(store, self._added)

    @property
    def _first(self) -> PageNumbers:
        return PageNumbers(*(log.first for log in self._logs.values()))

    @property
    def _added(self) -> int:
        return sum(log.count for log in self._logs.values())

    def advance(self, *, wait: bool) -> None:
        """Remove what is due. Call it when nothing is ahead of the store. With `wait`, sweeps all URLs, and
        returns when the disk space is free."""
        for family, log in self._logs.items():
            if (bounds := log.take_removable(REMOVED_AT_ONCE)) is not None:
                self._reclaiming.remove(family, bounds, "drop.pages")
        self._sweep.advance(self._first, self._added, wait=wait)
        self._reclaiming.check(wait=wait)

    def note_written(self, urls: Mapping[bytes, bytes]) -> None:
        """Note the URLs of a write, which may have been looked at before it."""
        self._sweep.written.append(urls)

    def close(self) -> None:
        """Wait for what is being looked at, and reclaimed."""
        self._sweep.close()
        self._reclaiming.close()


class _Looked(NamedTuple):
    """URLs that were looked at."""

    number: int
    last: bytes
    """The last one, if there is any."""
    gone: list[bytes]
    """Those whose pages are all gone."""

    @classmethod
    def at(cls, urls: list[tuple[bytes, bytes]], first: PageNumbers) -> _Looked:
        """Look at URLs and references to their baselines."""
        gone = np.flatnonzero(all_gone([value for _, value in urls], first)).tolist()
        return cls(len(urls), urls[-1][0] if urls else b"", [urls[place][0] for place in gone])


class _Step(NamedTuple):
    """URLs that are being looked at."""

    most: int
    first: PageNumbers
    """Pages before these are gone."""
    looked: Future[_Looked]


class _Sweep:
    """Goes round all URLs, and removes those whose pages are all gone. A thread looks at them, beside
    batches."""

    def __init__(self, store: Store, added: int) -> None:
        self._store, self._added = store, added
        # Not always the same place, or a judge that is restarted often would never get to some URLs.
        self._cursor = hash_words(np.array([added], np.uint64)).astype(">u8").tobytes()
        self._due = 0
        self._round: PageNumbers | None = None
        """The first pages when this round began. None if it did not begin with the first URL."""
        self._swept = PageNumbers(0, 0)
        """The first pages when the last whole round began."""
        self._thread = ThreadPoolExecutor(1, "sweep")
        self._step: _Step | None = None
        self.written: list[Mapping[bytes, bytes]] = []
        """The URLs that were written since the step began."""

    def advance(self, first: PageNumbers, added: int, *, wait: bool) -> None:
        """Look at some URLs. `added` is the number of pages ever added, and pages before the `first` ones are
        gone."""
        self._due = min(self._due + SWEPT_A_PAGE * (added - self._added), SWEPT_AT_ONCE)
        self._added = added
        while True:
            if self._step is not None:
                if not (wait or self._step.looked.done()):
                    return
                self._end(self._step)
            self.written.clear()
            if first == self._swept or not (wait or self._due >= LEAST_SWEPT):
                return
            self._begin(first, SWEPT_AT_ONCE if wait else self._due)

    def _begin(self, first: PageNumbers, most: int) -> None:
        if not self._cursor:
            self._round = first
        self._step = _Step(most, first, self._thread.submit(self._look, self._cursor, most, first))
        self._due = 0

    def _look(self, start: bytes, most: int, first: PageNumbers) -> _Looked:
        return _Looked.at(self._store.some(URLS, start, most), first)

    def _end(self, step: _Step) -> None:
        self._step, looked = None, step.looked.result()
        if looked.number < step.most:  # these are the last ones, or there is a damaged block: this raises
            looked = _Looked.at(list(islice(self._store.scan(URLS, self._cursor), step.most)), step.first)
        gone = looked.gone
        for written in self.written:
            if not written.keys().isdisjoint(gone):
                gone = [url for url in gone if url not in written]
        if gone:
            batch = self._store.batch()
            batch.delete_many(URLS, gone)
            self._store.write(batch)
            reach("sweep.urls")
        if looked.number == step.most:
            self._cursor = looked.last + bytes(1)
            return
        if self._round is not None:
            self._swept = self._round
        self._cursor, self._round = b"", None

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
