"""The numbers of a batch's pages: anchors are counted in journal order, and so are duplicates."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.messages.verdict import Verdict
from stream.tables.arrays import I64, U8

NO_NUMBER: Final = -1


class PageNumbers(NamedTuple):
    """A number of an anchor, and one of a duplicate."""

    anchors: int
    duplicates: int


def own_numbers(stored_as: U8, next_: PageNumbers) -> I64:
    """Return the numbers (n,) of pages that become anchors (UNIQUE) and duplicates (DUPLICATE); NO_NUMBER of
    pages that become neither."""
    numbers: I64 = np.full(len(stored_as), NO_NUMBER)
    for kind, first in ((Verdict.UNIQUE, next_.anchors), (Verdict.DUPLICATE, next_.duplicates)):
        rows = np.flatnonzero(stored_as == kind)
        numbers[rows] = np.arange(first, first + len(rows))
    return numbers
