"""Copies records of web archives byte for byte: the records of pages that are kept, and of `warcinfo`.

Records that are compressed one by one, as the format recommends, or not at all, are copied as they are
stored. Others are decompressed, and each is compressed for itself.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from typing import BinaryIO, Final

import zstandard

from stream.dedup.kept_pages import KeptPages
from stream.output import Output
from stream.pages.members import Compression, Members
from stream.pages.web_archive import ArchiveReader, ArchiveRecord, DamagedRecord
from stream.sources.source import MAX_BODY
from stream.sources.warc import WarcSource, why_no_page
from stream.stores.objects import path_of

BLOCK: Final = 1 << 20
_END: Final = b"\r\n\r\n"
_COMPRESS: Final[dict[Compression | None, Callable[[bytes], bytes]]] = {
    None: bytes,
    "gzip": lambda record: gzip.compress(record, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda record: zstandard.ZstdCompressor().compress(record),
}


def copy_archive(
    source: WarcSource, pages: KeptPages, output: Output, compression: Compression | None
) -> None:
    """Copy the records of pages that are kept, compressed as `compression` says."""
    path = path_of(source.name)
    size = path.stat().st_size
    with path.open("rb") as archive, path.open("rb") as stored:
        members = Members(archive)
        records = iter(ArchiveReader(members, MAX_BODY))
        record = next(records, None)
        # A file has one dictionary, in its first frame.
        as_stored = members.kind == compression is not None and not (
            members.dictionary_frame and output.bytes
        )
        if as_stored:
            output.write(members.dictionary_frame)
        while record is not None and not pages.ended:
            following = next(records, None)
            if isinstance(record, ArchiveRecord) and _is_copied(record, pages):
                end = size if following is None else following.member
                if as_stored and _is_alone(record) and (following is None or _is_alone(following)):
                    stored.seek(record.member)
                    _copy_range(stored, end - record.member, output)
                else:
                    output.write(_COMPRESS[compression](_bytes_of(record, compression)))
            record = following


def _is_copied(record: ArchiveRecord, pages: KeptPages) -> bool:
    return pages.take() if why_no_page(record) is None else record.kind == "warcinfo"


def _is_alone(record: ArchiveRecord | DamagedRecord) -> bool:
    """Whether a member begins with the record, and the one before it ends there."""
    return isinstance(record, ArchiveRecord) and record.within == 0


def _bytes_of(record: ArchiveRecord, compression: Compression | None) -> bytes:
    whole = record.header + record.content + record.gap
    if compression is None or whole.endswith(_END):
        return whole
    return record.header + record.content + _END  # behind the last page is damage


def _copy_range(file: BinaryIO, size: int, output: Output) -> None:
    while size and (block := file.read(min(BLOCK, size))):
        output.write(block)
        size -= len(block)
