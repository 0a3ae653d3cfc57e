"""Page ids, which are positions in the journal.

The packed form is an int64, `offset << 16 | index`, so ids sort in journal order. The published form is
`journal.offset.index`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

INDEX_BITS: Final = 16
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
NO_PAGE: Final = -1


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
