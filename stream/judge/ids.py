"""Page ids, which are positions in the journal.

The packed form is an int64, `offset << 16 | index`, so ids sort in journal order. The published form is
`journal.offset.index`, of the first 8 digits of the journal's UUID.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

INDEX_BITS: Final = 16
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
OFFSET_BITS: Final = 63 - INDEX_BITS
NO_PAGE: Final = -1
_SHOWN: Final = re.compile(r"([0-9a-f]{8})\.(0|[1-9][0-9]{0,14})\.(0|[1-9][0-9]{0,4})")


class PageName(NamedTuple):
    """A published id."""

    journal: str
    """The first 8 digits of the journal's UUID."""
    page: int
    """The packed form."""


def pack(offset: int, index: int) -> int:
    """Return the packed id of the page at row `index` of the journal record at `offset`."""
    return offset << INDEX_BITS | index


def allot(offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the packed ids of all rows of journal records at `offsets` with so many rows, in order."""
    index = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    pages: NDArray[np.int64] = np.repeat(offsets << INDEX_BITS, sizes) | index
    return pages


def show(journal: str, page: int) -> str:
    """Return the published form of a packed id. `journal` is the journal's UUID."""
    return f"{journal[:8]}.{page >> INDEX_BITS}.{page & INDEX_MASK}"


def parse(shown: str) -> PageName | None:
    """Return what a published id says, or None for what no page can have as its id."""
    if (match := _SHOWN.fullmatch(shown)) is None:
        return None
    offset, index = int(match[2]), int(match[3])
    if offset >> OFFSET_BITS or index > INDEX_MASK:
        return None
    return PageName(match[1], pack(offset, index))
