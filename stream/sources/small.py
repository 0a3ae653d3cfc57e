"""Tells sources that have so few pages that commands interpret their loops."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from stream.sources.directory import COMPRESSED, DirectorySource
from stream.sources.file import FileSource
from stream.sources.source import Source
from stream.sources.table import ParquetSource

SMALL_BYTES: Final = 64 << 10
"""Most bytes of small sources. Interpreted loops take at most 2 s of processor time for them, most of
it for pages of one template; loading machine code takes 1.5 s, and compiling it 60 s."""


def are_small(sources: Sequence[Source]) -> bool:
    """Whether sources have few pages for certain: no more than SMALL_BYTES, which nothing decompresses."""
    sizes = [each.total_bytes if _is_plain(each) else None for each in sources]
    return all(size is not None for size in sizes) and sum(size or 0 for size in sizes) <= SMALL_BYTES


def _is_plain(source: Source) -> bool:
    if isinstance(source, DirectorySource):  # each of its files is one page, compressed or not
        return True
    is_file = isinstance(source, FileSource) and not isinstance(source, ParquetSource)
    return is_file and os.path.splitext(source.name)[1].lower() not in COMPRESSED
