"""Copies records of web archives byte for byte: the records of pages that are kept, and of `warcinfo`.

Records that are compressed one by one, as the format recommends, or not at all, are copied as they are
stored. Others are decompressed, and each is compressed for itself.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import BinaryIO, Final

import zstandard
from fastwarc.warc import WarcRecordType

from stream.dedup.kept_pages import KeptPages
from stream.objects import path_of
from stream.output import Output
from stream.sources.compressed import (
    DAMAGED,
    Compression,
    CountingFile,
    compression_of,
    decompressed,
    open_counting,
)
from stream.sources.warc import OWN, WarcSource, records_of, why_no_page

BLOCK: Final = 1 << 20
_START: Final = b"WARC/"
_END: Final = b"\r\n\r\n"
_COMPRESS: Final[dict[Compression | None, Callable[[bytes], bytes]]] = {
    None: bytes,
    "gzip": lambda record: gzip.compress(record, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda record: zstandard.ZstdCompressor().compress(record),
}


class _Records:
    """Where the records of an archive begin, and which of them are copied."""

    def __init__(self) -> None:
        self.starts = array("q")
        self.copied = bytearray()
        self.whole = True
        """Whether the archive was read to its end, or another record."""

    def apart(self, name: str) -> bool:
        """Whether each record of the archive begins where a member of the file does.

        A record that begins inside a member, as in files that are compressed in blocks of one size, has the
        place of that member.
        """
        if any(start >= end for start, end in pairwise(self.starts)):
            return False
        with path_of(name).open("rb") as file:
            for start in self.starts:
                file.seek(start)
                member = decompressed(CountingFile(file, owned=False))
                if member.read(len(_START)) != _START:
                    return False
        return True

    def ranges(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield start and end of the records that are copied."""
        for place, copied in enumerate(self.copied):
            if copied:
                yield self.starts[place], self.starts[place + 1] if place + 1 < len(self.starts) else size


def copy_archive(
    source: WarcSource, pages: KeptPages, output: Output, compression: Compression | None
) -> None:
    """Copy the records of pages that are kept, compressed as `compression` says."""
    own = compression_of(source.name)
    size = path_of(source.name).stat().st_size
    page_flags = bytearray()

    def take() -> bool:
        page_flags.append(pages.take())
        return bool(page_flags[-1])

    if own not in OWN:
        with open_counting(source.name) as raw:
            records = _read_records(raw, source.name, take, lambda: pages.ended, whole=True)
        if own == compression and records.whole and not source.damage_count and records.apart(source.name):
            with path_of(source.name).open("rb") as file:
                for start, end in records.ranges(size):
                    file.seek(start)
                    _copy_range(file, end - start, output)
            return
        flags = iter(page_flags)
        left = len(page_flags)

        def take_again() -> bool:
            nonlocal left
            left -= 1
            return bool(next(flags))

        with open_counting(source.name) as raw:
            content = CountingFile(decompressed(raw))
            records = _read_records(content, source.name, take_again, lambda: not left)
    else:
        with open_counting(source.name) as raw:
            records = _read_records(CountingFile(decompressed(raw)), source.name, take, lambda: pages.ended)
    with open_counting(source.name) as raw:
        _compress_records(decompressed(raw), records, _COMPRESS[compression], output)


def _read_records(
    file: CountingFile, name: str, take: Callable[[], bool], ended: Callable[[], bool], *, whole: bool = False
) -> _Records:
    """Read the records up to the one behind the last page. `take` says of each page whether it is kept, and
    `whole` whether this is the file itself and not its decompressed content."""
    records = _Records()
    try:
        for record in records_of(file, name if whole else None):
            records.starts.append(record.stream_pos)
            if ended():
                break
            if why_no_page(record, name) is None:
                copied = take()
            else:
                copied = record.record_type == WarcRecordType.warcinfo
            records.copied.append(copied)
    except DAMAGED:
        if not ended():
            raise
        records.whole = False
    return records


def _copy_range(file: BinaryIO, size: int, output: Output) -> None:
    while size and (block := file.read(min(BLOCK, size))):
        output.write(block)
        size -= len(block)


def _compress_records(
    content: io.BufferedReader, records: _Records, compress: Callable[[bytes], bytes], output: Output
) -> None:
    """Write the records that are copied, of a decompressed archive."""
    place = 0
    for start, end in records.ranges(sys.maxsize):
        _read(content, start - place)
        record = _read(content, end - start)
        place = start + len(record)
        if not record.endswith(_END):  # behind the last page is damage
            record = record.rstrip(b"\r\n") + _END
        output.write(compress(record))


def _read(content: io.BufferedReader, size: int) -> bytes:
    """Read so many bytes, or up to the end or damage."""
    blocks: list[bytes] = []
    with suppress(*DAMAGED):
        while size and (block := content.read1(min(BLOCK, size))):
            blocks.append(block)
            size -= len(block)
    return b"".join(blocks)
