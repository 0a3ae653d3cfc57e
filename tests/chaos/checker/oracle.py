"""The oracle of `tests/oracle.py`, fast enough for a hundred thousand pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle import Anchor, Oracle, OraclePage


class IndexedOracle(Oracle):
    """Finds the same candidates by what they entered, or in strict mode by every anchor's distance."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._number = 0
        self._buckets: dict[tuple[int, int], dict[int, Anchor]] = {}
        self._of_page: dict[int, tuple[int, Anchor]] = {}
        self._fingerprints = np.zeros(1024, np.uint64)
        self._dead = np.zeros(1024, bool)
        self._numbered: dict[int, Anchor] = {}

    def candidates(self, page: OraclePage) -> list[Anchor]:
        """Live anchors in the buckets that the page looks into, oldest first."""
        if self.strict:
            known = slice(self._number)
            far = np.bitwise_count(self._fingerprints[known] ^ np.uint64(page.fingerprint))
            near = np.flatnonzero((far <= self.distance) & ~self._dead[known])
            return [self._numbered[number] for number in near.tolist()]
        found: dict[int, Anchor] = {}
        for bucket in self.looks_into(page):
            found.update(self._buckets.get(bucket, {}))
        return [found[number] for number in sorted(found)]

    def enter(self, anchor: Anchor) -> None:
        """Add a new anchor."""
        number, self._number = self._number, self._number + 1
        self._of_page[id(anchor.page)] = number, anchor
        if not self.strict:
            for bucket in anchor.entered:
                self._buckets.setdefault(bucket, {})[number] = anchor
            return
        if number == len(self._dead):
            self._fingerprints = np.concatenate([self._fingerprints, np.zeros_like(self._fingerprints)])
            self._dead = np.concatenate([self._dead, np.zeros_like(self._dead)])
        self._fingerprints[number] = anchor.page.fingerprint
        self._numbered[number] = anchor

    def leave(self, page: OraclePage) -> Anchor | None:
        """Remove a superseded page from the live anchors. Returns its anchor, if it was one."""
        number, gone = self._of_page.pop(id(page), (0, None))
        if gone is None:
            return None
        if self.strict:
            self._dead[number] = True
        else:
            for bucket in gone.entered:
                del self._buckets[bucket][number]
        return gone

    def forget(self, pages: set[str]) -> None:
        """Forget pages, given by their ids."""
        self.anchors = [each for _, each in self._of_page.values() if each.page.id in pages]
        super().forget(pages)
        self.anchors = []
