"""Page ids: a page is named by its place in the journal.

Inside, `offset << 16 | index` in one int64 (so ids sort in journal order); outside, `journal.offset.index`.
"""

from __future__ import annotations

from typing import Final

INDEX_BITS: Final = 16
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
NO_PAGE: Final = -1


def pack(offset: int, index: int) -> int:
    """The page that stands at row `index` of the journal record at `offset`."""
    return offset << INDEX_BITS | index


def show(journal: str, page: int) -> str:
    """The id as published. `journal` is the journal's UUID, `page` a packed id."""
    return f"{journal[:8]}.{page >> INDEX_BITS}.{page & INDEX_MASK}"
