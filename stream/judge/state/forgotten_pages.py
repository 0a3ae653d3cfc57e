"""Pages that are forgotten, and that a state directory still has: their numbers, until all is erased.

Nothing finds them from the decision on that forgot them. Erasing them takes three steps: their records are
blanked, the files that had the records are rewritten, and the numbers are dropped. If it is interrupted, it
begins anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.judge.state.page_log import GROUP, PageLog
from stream.tables.arrays import I64
from stream.tables.store.anchors import with_prefix
from stream.tables.store.contents import difference, union
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, URLS, Store, Writes

_FORGOTTEN: Final = b"forgotten/"
BLANKED_AT_ONCE: Final = 4096
"""Pages whose records are blanked at a time. They take about a tenth of a second."""


class _Numbers(NamedTuple):
    """The pages that one decision forgot, by ascending numbers."""

    anchors: I64
    duplicates: I64

    @classmethod
    def of(cls, value: bytes) -> _Numbers:
        """Decode a record."""
        numbers = np.frombuffer(value, "<i8").astype(np.int64)
        return cls(numbers[1 : numbers[0] + 1], numbers[numbers[0] + 1 :])

    @property
    def value(self) -> bytes:
        """The record: the number of anchors, and the numbers of anchors and duplicates, i64 LE each."""
        return np.concatenate([[len(self.anchors)], self.anchors, self.duplicates]).astype("<i8").tobytes()

    @property
    def pages(self) -> int:
        return len(self.anchors) + len(self.duplicates)


class ForgottenPages:
    """The forgotten pages of a state directory that are not erased, by the decisions that forgot them.

    The key of a decision's record is its offset plus 1, u64 BE.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = {
            int.from_bytes(key, "big"): _Numbers.of(value) for key, value in with_prefix(store, _FORGOTTEN)
        }
        """Offset after that of each decision -> its pages, in order."""
        self.digest = union(*map(_digest_of, self._records.items()))
        """Digest of the records."""
        self.blanked = 0
        """Such an offset: the pages of the decisions before it are blanked since the directory was opened."""
        self._begun = 0
        """How many of the next decision's pages are blanked."""

    @property
    def count(self) -> int:
        """Number of pages."""
        return sum(each.pages for each in self._records.values())

    def among(self, numbers: I64, *, is_anchor: bool) -> NDArray[np.bool_]:
        """Whether each of these anchors, or duplicates, is one of them (n,)."""
        among = np.zeros(len(numbers), np.bool_)
        for each in list(self._records.values()) if len(numbers) else ():
            if len(column := each.anchors if is_anchor else each.duplicates):
                among |= column.take(column.searchsorted(numbers), mode="clip") == numbers
        return among

    def add(self, writes: Writes, decided: int, anchors: I64, duplicates: I64) -> None:
        """Add the pages that a decision before the offset `decided` forgot."""
        self._records[decided] = numbers = _Numbers(anchors, duplicates)
        self.digest = union(self.digest, _digest_of((decided, numbers)))
        writes.put(DEFAULT, _FORGOTTEN + decided.to_bytes(8, "big"), numbers.value)

    def blank(self, anchors: PageLog, duplicates: PageLog, words: I64) -> bool:
        """Blank the records of some pages that were not blanked since opening: their URLs, and these words.
        Returns whether there were any."""
        for offset, numbers in self._records.items():
            if offset <= self.blanked:
                continue
            here = slice(self._begun, self._begun + BLANKED_AT_ONCE)
            if self._begun < len(numbers.anchors):
                some = numbers.anchors[here]
                anchors.blank(some, words)
            else:
                held = len(numbers.anchors)
                some = numbers.duplicates[here.start - held : here.stop - held]
                duplicates.blank(some, words)
            self._begun += len(some)
            if self._begun == numbers.pages:
                self.blanked, self._begun = offset, 0
            return True
        return False

    def compact(self) -> None:
        """Rewrite the files that may have had what is blanked, while other threads may write."""
        records = [each for offset, each in list(self._records.items()) if offset <= self.blanked]
        self._store.flush()
        for family, columns in (
            (ANCHORS, [each.anchors for each in records]),
            (DUPLICATES, [each.duplicates for each in records]),
        ):
            if len(numbers := np.concatenate([np.zeros(0, np.int64), *columns])):
                first, last = (int(number) // GROUP * GROUP for number in (numbers.min(), numbers.max()))
                self._store.compact(family, first.to_bytes(8, "big"), (last + GROUP).to_bytes(8, "big"))
        self._store.compact(URLS)
        self._store.compact(DEFAULT)  # has earlier versions of incomplete groups

    def drop(self, writes: Writes, erased: int) -> None:
        """Drop the pages that decisions before the offset `erased` forgot: nothing is left of them."""
        for offset in [each for each in self._records if each <= erased]:
            writes.delete(DEFAULT, _FORGOTTEN + offset.to_bytes(8, "big"))
            self.digest = difference(self.digest, _digest_of((offset, self._records.pop(offset))))


def _digest_of(record: tuple[int, _Numbers]) -> int:
    offset, numbers = record
    return xxhash.xxh3_64_intdigest(numbers.value, offset)
