"""Web archives: the HTML and plain-text pages of WARC and WET files, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from fastwarc.warc import ArchiveIterator, WarcRecord

from stream.errors import PageError
from stream.objects import path_of
from stream.pages.content_type import content_type
from stream.pages.page import Page
from stream.pages.warc_record import (
    RECORDS,
    body_of,
    canonical_url_of,
    content_type_of,
    fetched_at_of,
    target_of,
)
from stream.sources.compressed import (
    DAMAGED,
    STDIN,
    CountingFile,
    behind_empty_member,
    compression_of,
    decompressed,
)
from stream.sources.encode import encode_page
from stream.sources.file import FileSource
from stream.sources.source import MAX_MESSAGE, Message

PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml", "text/plain", None})
"""Content types of pages. Without one, the bytes tell."""
OWN: Final = ("bzip2", "xz")
"""Compressions that fastwarc does not support."""
MAX_BODY: Final = MAX_MESSAGE // 2
"""Most bytes of a body, stored or decoded. Its base64 must fit in MAX_MESSAGE."""


class WarcSource(FileSource):
    """HTTP responses with status 2xx, and resource and conversion (WET) records, of the types in PAGE_TYPES.

    Only pages with an http or https URL are read: some crawlers store the extracted text beside the page
    under a `urn:`. Other records are counted in `passed_over`. A page whose body cannot be decoded, or is
    larger than MAX_BODY, is yielded without a body, so that it still gets a verdict (`rejected`).
    """

    def _read(self) -> Iterator[Message]:
        place = "at its start"
        with self._opened() as raw:
            try:
                # If fastwarc decompresses (gzip and zstd), it knows each record's offset in the file.
                own = self.name == STDIN or compression_of(self.name) in OWN
                file = CountingFile(decompressed(raw)) if own else raw
                for record in records_of(file, None if own else self.name):
                    place = f"record at byte {record.stream_pos}"
                    page = _page(record, f"{self.name} {place}")
                    if isinstance(page, str):
                        self.passed_over[page] += 1
                    else:
                        yield Message(encode_page(page), page.url, self.name, place)
            except DAMAGED as error:
                raise PageError("damaged_source", f"{self.name} {place}: {error}") from error


def records_of(file: CountingFile, path: str | None) -> Iterator[WarcRecord]:
    """Yield the records of an archive. `path` is that of the file, or None if its content is decompressed.

    fastwarc takes an empty member of gzip, and a frame that is truncated in its header, for the end of the
    file: what follows the last record is decompressed again, and read on. Raises one of DAMAGED.
    """
    with ExitStack() as opened:
        section, start = file, 0
        while True:
            # auto_decode would stop at the first body that cannot be decoded.
            for record in ArchiveIterator(section, parse_http=True, auto_decode="none", strict_mode=False):
                start = record.stream_pos
                yield record
                file.bytes_read = max(file.bytes_read, section.bytes_read)
            if path is None or (behind := behind_empty_member(path, start)) is None:
                return
            start = behind
            following = opened.enter_context(path_of(path).open("rb"))
            following.seek(start)
            section = CountingFile(following, owned=False, start=start)


def why_no_page(record: WarcRecord, where: str) -> str | None:
    """The reason why a record has no page, a key of `PASSED_OVER`, or None. Raises PageError."""
    length = record.headers.get("Content-Length", "")
    if not (length and length.isdecimal()):
        # fastwarc takes a header truncated by the end of the file for an empty record.
        raise PageError("damaged_source", f"{where}: no Content-Length; the archive is truncated or damaged")
    url = target_of(record)
    if not record.record_type & RECORDS or not url.lower().startswith(("http://", "https://")):
        return "record_type"
    http = record.http_headers if record.is_http_parsed else None
    if http is not None and not 200 <= (http.status_code or 0) < 300:
        return "http_status"
    if content_type(content_type_of(record)).kind not in PAGE_TYPES:
        return "content_type"
    return None


def _page(record: WarcRecord, where: str) -> Page | str:
    """The page of a record, or the reason why it has none."""
    if why := why_no_page(record, where):
        return why
    url = target_of(record)
    return Page(
        url=url,
        body=_body(record, where),
        content_type=content_type_of(record),
        fetched_at=fetched_at_of(record),
        canonical_url=canonical_url_of(record, url),
    )


def _body(record: WarcRecord, where: str) -> bytes | None:
    expected = record.content_length
    if expected > MAX_BODY:
        return None
    payload = record.reader.read()
    if len(payload) != expected:
        raise PageError("damaged_source", f"{where}: truncated after {len(payload)} of {expected} bytes")
    try:
        return body_of(record, payload, MAX_BODY)
    except PageError:
        return None
