"""The page in a record of a web archive, whose every field is untrusted."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from stream.errors import PageError
from stream.pages.decompression import too_large
from stream.pages.http_body import decode_chunks, decode_content
from stream.pages.members import Members
from stream.pages.times import page_time
from stream.pages.web_archive import ArchiveReader, ArchiveRecord, RecordError
from stream.text.canonical import canonical_of_header

RECORDS: Final = frozenset({"response", "resource", "conversion"})
"""Types of records that contain a page."""
HEADERS: Final = 128 << 10
"""Most bytes of a record that are not its body, when a message names it."""


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
    """Return the page of the record at the start of `data`, plain or in a member of its own. A frame with the
    dictionary of the archive may precede it.

    `ended` tells that the archive ends with `data`. Raises MoreError if more bytes are needed and there are
    more; PageError `claim_damaged`, `bad_claim`, `too_large` or `bad_compression`. `where` is for the detail.
    """
    reading = _Reading(data, ended)
    refusal: PageError | None = None
    try:
        page = _page(ArchiveReader(Members(reading), limit + HEADERS).read(), limit, where)
    except PageError as error:
        refusal = error
    except RecordError as error:
        refusal = PageError("claim_damaged", f"{where}: {error}")
    # Neither a page nor an error counts if the record was truncated by our own read.
    if reading.short:
        raise MoreError
    if refusal:
        raise refusal
    return page


def target_of(record: ArchiveRecord) -> str:
    """Return the URL of the page."""
    return record.fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">")


def content_type_of(record: ArchiveRecord) -> str | None:
    """Return the content type by the server or, failing that, by the archiver."""
    fields = record.fields if record.http is None else record.http.fields
    return fields.get("content-type") or record.fields.get("warc-identified-payload-type")


def fetched_at_of(record: ArchiveRecord) -> int | None:
    """WARC-Date in milliseconds since the epoch; None if it is missing or no date."""
    date = record.fields.get("warc-date", "")
    with suppress(PageError):
        if not date.isdecimal():  # of records, no number is milliseconds
            return page_time(date)
    return None


def canonical_url_of(record: ArchiveRecord, url: str) -> str | None:
    """Return the absolute URL of the HTTP header `Link: <URL>; rel="canonical"`, or None; `url` is the
    page's."""
    declared = record.http.fields.get("link") if record.http is not None else None
    return canonical_of_header(declared, url) if declared else None


def stored_body(record: ArchiveRecord) -> tuple[bytes, str | None]:
    """Return the body of a record without its chunks, and its content codings."""
    http = record.http
    if http is None:
        return record.content, None
    body = decode_chunks(http.body, http.fields.get("transfer-encoding", ""))
    return body, http.fields.get("content-encoding")


def _page(record: ArchiveRecord, limit: int, where: str) -> ArchivedPage:
    if record.kind not in RECORDS:
        raise PageError("bad_claim", f"{where}: a {record.kind} record holds no page")
    if not record.is_whole:
        raise too_large(limit, "archived page")
    return ArchivedPage(
        decode_content(*stored_body(record), limit),
        content_type_of(record),
        fetched_at_of(record),
        canonical_url_of(record, target_of(record)),
    )


class _Reading:
    """The bytes read so far, as a file. Tells their end from the end of the archive."""

    def __init__(self, data: bytes, ended: bool) -> None:
        self._data = data
        self._ended = ended
        self._place = 0
        self.short = False
        """Whether bytes were asked for that are not read yet."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""
        data = self._data[self._place : self._place + size]
        self._place += len(data)
        self.short = self.short or not (data or self._ended)
        return data
