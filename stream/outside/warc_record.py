"""One record of a web archive, at a byte that somebody else told us: nothing about it is believed."""

from __future__ import annotations

import zlib
from typing import BinaryIO, NamedTuple

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from stream.errors import PageError
from stream.messages.compression import too_large
from stream.messages.http_body import decode_body

RECORDS = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.conversion
"""Types of records that hold a page."""


class ArchivedPage(NamedTuple):
    """What a record says of its page."""

    body: bytes
    content_type: str | None
    fetched_at: int | None
    """Milliseconds since the epoch."""


def archived_page(file: BinaryIO, offset: int, limit: int, where: str) -> ArchivedPage:
    """The page of the record that begins at that byte, plain or in a gzip or zstd member of its own.

    Raises PageError `claim_damaged`, `bad_claim`, `too_large` or `bad_compression`; OSError of reading.
    """
    reading = _Reading(file, offset)
    try:
        for record in ArchiveIterator(reading, parse_http=True, auto_decode="none", strict_mode=True):
            return _page(record, limit, where)
    except (PageError, MemoryError):
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        if reading.failed is not None:
            raise reading.failed from None
        raise PageError("claim_damaged", f"{where}: {error}") from None
    if reading.failed is not None:
        raise reading.failed
    raise PageError("claim_damaged", f"{where}: no WARC record begins there")


def content_type_of(record: WarcRecord) -> str | None:
    """What the server, or else the archiver, says the page is."""
    headers = record.http_headers if record.is_http_parsed else record.headers
    told = headers.get("Content-Type") or record.headers.get("WARC-Identified-Payload-Type")
    return None if told is None else str(told)


def fetched_at_of(record: WarcRecord) -> int | None:
    """Milliseconds since the epoch."""
    return int(record.record_date.timestamp() * 1000) if record.headers.get("WARC-Date") else None


def body_of(record: WarcRecord, payload: bytes, limit: int) -> bytes:
    """The entity of a record's payload. Raises PageError `too_large` or `bad_compression`."""
    if not record.is_http_parsed:
        return payload
    return decode_body(
        payload,
        record.http_headers.get("Transfer-Encoding") or "",
        record.http_headers.get("Content-Encoding") or "",
        limit,
    )


def _page(record: WarcRecord, limit: int, where: str) -> ArchivedPage:
    length = record.headers.get("Content-Length", "")
    if not (length and length.isdecimal()):
        raise PageError("claim_damaged", f"{where}: no Content-Length")
    if not record.record_type & RECORDS:
        raise PageError("bad_claim", f"{where}: a {record.headers.get('WARC-Type')} record holds no page")
    expected = record.content_length
    if expected > limit:
        raise too_large(limit, "archived page")
    payload = record.reader.read()
    if len(payload) != expected:
        raise PageError("claim_damaged", f"{where}: {len(payload)} of {expected} bytes; cut off")
    return ArchivedPage(body_of(record, payload, limit), content_type_of(record), fetched_at_of(record))


class _Reading:
    """The file from a byte on, as fastwarc reads it. An error of the store must not look like damage."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self._place = 0
        self.failed: OSError | None = None
        file.seek(offset)

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""
        try:
            data = self._file.read(size)
        except OSError as error:
            self.failed = error
            raise
        self._place += len(data)
        return data

    def tell(self) -> int:
        """Bytes read so far."""
        return self._place

    def seek(self, offset: int, whence: int = 0) -> int:
        """Asked only where we are."""
        if (offset, whence) not in ((0, 1), (self._place, 0)):
            raise OSError("seek")
        return self._place

    def close(self) -> None:
        """The file is its opener's."""
