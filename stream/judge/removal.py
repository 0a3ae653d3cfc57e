"""Removes what is gone of a state from RocksDB: groups of pages, and URLs whose pages are all gone.

Nothing depends on what is removed when: readers, and the digest of a state, leave out what is gone.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np

from stream.failpoints import reach
from stream.judge.page_log import PageLog
from stream.judge.page_numbers import PageNumbers
from stream.judge.references import all_gone
from stream.tables.store.contents import hash_words
from stream.tables.store.reclaim import Reclaiming
from stream.tables.store.rocks import ANCHORS, DUPLICATES, URLS, Store
from stream.tables.tables import REMOVED_AT_ONCE

SWEPT_A_PAGE: Final = 2
"""URLs that are looked at for each page that is added, which takes .8 us. So a round ends when half as many
pages were added as there are URLs, and a quarter of these have no page."""
LEAST_SWEPT: Final = 1 << 10
SWEPT_AT_ONCE: Final = 1 << 14
"""Least and most URLs that are looked at in one step. The most take 10 ms."""


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
            batch = self._store.batch()
            if (bounds := log.remove(batch, REMOVED_AT_ONCE)) is not None:
                self._store.write(batch)
                self._reclaiming.begin([family], bounds, "drop.pages")
        self._sweep.advance(self._first, self._added, wait=wait)
        self._reclaiming.check(wait=wait)

    def close(self) -> None:
        """Wait for what is being reclaimed."""
        self._reclaiming.close()


class _Sweep:
    """Goes round all URLs, and removes those whose pages are all gone."""

    def __init__(self, store: Store, added: int) -> None:
        self._store, self._added = store, added
        # Not always the same place, or a judge that is restarted often would never get to some URLs.
        self._cursor = hash_words(np.array([added], np.uint64)).astype(">u8").tobytes()
        self._due = 0
        self._round: PageNumbers | None = None
        """The first pages when this round began. None if it did not begin with the first URL."""
        self._swept = PageNumbers(0, 0)
        """The first pages when the last whole round began."""

    def advance(self, first: PageNumbers, added: int, *, wait: bool) -> None:
        """Look at some URLs. `added` is the number of pages ever added, and pages before the `first` ones are
        gone."""
        self._due = min(self._due + SWEPT_A_PAGE * (added - self._added), SWEPT_AT_ONCE)
        self._added = added
        while first != self._swept and (wait or self._due >= LEAST_SWEPT):
            self._step(first, SWEPT_AT_ONCE if wait else self._due)
            self._due = 0

    def _step(self, first: PageNumbers, most: int) -> None:
        if not self._cursor:
            self._round = first
        urls = list(islice(self._store.scan(URLS, self._cursor), most))
        if urls:
            gone = np.flatnonzero(all_gone([value for _, value in urls], first)).tolist()
            if gone:
                batch = self._store.batch()
                for place in gone:
                    batch.delete(URLS, urls[place][0])
                self._store.write(batch)
                reach("sweep.urls")
        if len(urls) == most:
            self._cursor = urls[-1][0] + bytes(1)
            return
        if self._round is not None:
            self._swept = self._round
        self._cursor, self._round = b"", None
