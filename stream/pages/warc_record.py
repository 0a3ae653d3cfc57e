"""Reads one record of a web archive at an untrusted offset, so every field is checked."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from stream.errors import PageError
from stream.pages.decompression import too_large
from stream.pages.http_body import decode_body
from stream.pages.times import writable
from stream.text.canonical import canonical_of_header

RECORDS = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.conversion
"""Types of records that contain a page."""


class ArchivedPage(NamedTuple):
    """The page in a record of a web archive."""

    body: bytes
    content_type: str | None
    fetched_at: int | None
    """Milliseconds since the epoch."""
    canonical_url: str | None
    """By the HTTP header `Link`, absolute."""


class MoreError(Exception):
    """The record extends beyond the bytes read so far."""


def archived_page(data: bytes, ended: bool, limit: int, where: str) -> ArchivedPage:
    """Return the page of the record at the start of `data`, plain or in a gzip or zstd member of its own.

    `ended` tells that the archive ends with `data`. Raises MoreError if more bytes are needed and there are
    more; PageError `claim_damaged`, `bad_claim`, `too_large` or `bad_compression`. `where` is for the detail.
    """
    reading = _Reading(data, ended)
    refusal: PageError | None = None
    try:
        for record in ArchiveIterator(reading, parse_http=True, auto_decode="none", strict_mode=True):
            page = _page(record, limit, where)
            break
        else:
            raise PageError("claim_damaged", f"{where}: no WARC record begins there")
    except MemoryError:
        raise
    except PageError as error:
        refusal = error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        refusal = PageError("claim_damaged", f"{where}: {error}")
    # Neither a page nor an error counts if the record was truncated by our own read.
    if reading.short:
        raise MoreError
    if refusal:
        raise refusal
    return page


def target_of(record: WarcRecord) -> str:
    """Return the URL of the page."""
    return (record.headers.get("WARC-Target-URI") or "").strip().removeprefix("<").removesuffix(">")


def content_type_of(record: WarcRecord) -> str | None:
    """Return the content type by the server or, failing that, by the archiver."""
    headers = record.http_headers if record.is_http_parsed else record.headers
    declared = ", ".join(headers.get_multiple("Content-Type"))
    return declared or record.headers.get("WARC-Identified-Payload-Type") or None


def fetched_at_of(record: WarcRecord) -> int | None:
    """WARC-Date in milliseconds since the epoch; None if it is missing or malformed."""
    try:
        date = record.record_date
    except ValueError:  # of the year 0
        return None
    moment = None if date is None else int(date.timestamp() * 1000)
    return moment if moment is not None and writable(moment) else None


def canonical_url_of(record: WarcRecord, url: str) -> str | None:
    """Return the absolute URL of the HTTP header `Link: <URL>; rel="canonical"`, or None; `url` is the
    page's."""
    declared = record.http_headers.get("Link") if record.is_http_parsed else None
    return canonical_of_header(declared, url) if declared else None


def body_of(record: WarcRecord, payload: bytes, limit: int) -> bytes:
    """Return the decoded body of a record. Raises PageError `too_large` or `bad_compression`."""
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
        raise PageError("claim_damaged", f"{where}: truncated after {len(payload)} of {expected} bytes")
    return ArchivedPage(
        body_of(record, payload, limit),
        content_type_of(record),
        fetched_at_of(record),
        canonical_url_of(record, target_of(record)),
    )


class _Reading:
    """The bytes read so far, as a file for fastwarc. Tells their end from the end of the archive."""

    def __init__(self, data: bytes, ended: bool) -> None:
        self._data = data
        self._ended = ended
        self._place = 0
        self.short = False
        """Whether fastwarc asked for bytes that are not read yet."""

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes."""
        end = len(self._data) if size < 0 else min(self._place + size, len(self._data))
        data, self._place = self._data[self._place : end], end
        self.short = self.short or not (data or self._ended)
        return data

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._place

    def seek(self, offset: int, whence: int = 0) -> int:
        """Return the current position and seek to no other, which is all that fastwarc uses it for."""
        if (offset, whence) not in ((0, 1), (self._place, 0)):
            raise OSError("seek")
        return self._place

    def close(self) -> None:
        """Does nothing, as no file is open."""
