"""The answer of a segment about a run of journal records, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream.errors import AnswerError
from stream.judge.ids import INDEX_BITS


class Segment(NamedTuple):
    """A sealed range of anchors, [first, end) by number: it never gains one, and its dead stay dead."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"anchors [{self.first}, {self.end})"

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these anchors is in the range, (n,)."""
        inside: NDArray[np.bool_] = (numbers >= self.first) & (numbers < self.end)
        return inside


class Run(NamedTuple):
    """Consecutive journal records, [start, end) by offset, or a part of them that begins and ends within
    records."""

    start: int
    end: int
    row: int = 0
    """Where it begins in the record at `start`."""
    end_row: int = 0
    """Where it ends in the record at `end`: before this row."""

    @classmethod
    def between(cls, first: int, until: int) -> Self:
        """The pages [first, until), by packed id."""
        (start, row), (end, end_row) = (divmod(each, 1 << INDEX_BITS) for each in (first, until))
        return cls(start, end, row, end_row)

    def __str__(self) -> str:
        if self.row or self.end_row:
            return f"journal pages [{shown(self.first)}, {shown(self.until)})"
        return f"journal records [{self.start}, {self.end})"

    @property
    def first(self) -> int:
        """The first page, by packed id."""
        return self.start << INDEX_BITS | self.row

    @property
    def until(self) -> int:
        """The page, by packed id, before which it ends."""
        return self.end << INDEX_BITS | self.end_row

    def is_before(self, offset: int) -> bool:
        """Whether all of it is before this journal record."""
        return self.until <= offset << INDEX_BITS

    def has(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these pages, by packed id, is in the run, (n,)."""
        inside: NDArray[np.bool_] = (pages >= self.first) & (pages < self.until)
        return inside


class ListedPairs(NamedTuple):
    """m pairs of a page and a candidate anchor, ascending by page, then anchor: the columns of `Compared`."""

    page: NDArray[np.int64]
    """Packed id."""
    anchor: NDArray[np.int64]
    distance: NDArray[np.uint8]
    rank: NDArray[np.uint8]
    similarity: NDArray[np.int64]
    similar: NDArray[np.bool_]


class BucketCounts(NamedTuple):
    """The k buckets with live anchors into which pages look, ascending by page, then bucket."""

    page: NDArray[np.int64]
    """Packed id."""
    bucket: NDArray[np.int64]
    """Table of the page's exact bucket; triples follow the tables."""
    size: NDArray[np.int64]
    """Number of live anchors."""

    @classmethod
    def none(cls) -> BucketCounts:
        """No bucket has any, or none are counted."""
        return cls(*np.zeros((3, 0), np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a segment has for the pages of a run of records that have a fingerprint. A page that is not named
    has no candidates there.

    Raises AnswerError if it names a page or an anchor that is not in its ranges, or is not in order.
    """

    segment: Segment
    run: Run
    decided: int
    """The position in the decisions up to which the deaths of anchors were applied."""
    most: int
    """Most pairs that are listed for a page: of those within its distance, those of the least rank, of equal
    rank the oldest (rule 18)."""
    pairs: ListedPairs
    cut: NDArray[np.int64]
    """The pages that have more, ascending."""
    counts: BucketCounts

    def __post_init__(self) -> None:
        pairs, counts = self.pairs, self.counts
        pages = np.concatenate([pairs.page, self.cut, counts.page])
        if len(outside := pages[~self.run.has(pages)]):
            raise AnswerError(f"{self} names page {shown(outside[0])}")
        if len(outside := pairs.anchor[~self.segment.has(pairs.anchor)]):
            raise AnswerError(f"{self} names anchor {outside[0]}")
        if not (_ascend(pairs.page, pairs.anchor) and _ascend(counts.page, counts.bucket)):
            raise AnswerError(f"{self} is not in order")
        low, high = (np.searchsorted(pairs.page, self.cut, side) for side in ("left", "right"))
        if len(wrong := self.cut[high - low != self.most]):
            raise AnswerError(f"{self} is cut for page {shown(wrong[0])}, but does not list {self.most}")

    def __str__(self) -> str:
        return f"the answer of {self.segment} about {self.run}"


def shown(page: int | np.int64) -> str:
    """The place of a page in the journal, by its packed id."""
    offset, index = divmod(int(page), 1 << INDEX_BITS)
    return f"{offset}.{index}"


def between(pages: NDArray[np.int64], first: int, until: int) -> slice:
    """Where the pages [first, until), by packed id, are among some that ascend."""
    return slice(*np.searchsorted(pages, (first, until)).tolist())


def _ascend(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether pairs are distinct and in order."""
    step = np.diff(first)
    return bool(((step > 0) | (step == 0) & (np.diff(second) > 0)).all())
