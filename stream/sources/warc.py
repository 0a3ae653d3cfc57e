"""Web archives: the HTML and plain-text pages of WARC and WET files, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from stream.errors import PageError
from stream.pages.content_type import content_type
from stream.pages.http_body import decode_content
from stream.pages.members import DAMAGED, Members
from stream.pages.warc_record import (
    RECORDS,
    canonical_url_of,
    content_type_of,
    fetched_at_of,
    stored_body,
    target_of,
)
from stream.pages.web_archive import ArchiveReader, ArchiveRecord, DamagedRecord
from stream.sources.encode import encode_fields
from stream.sources.file import FileSource
from stream.sources.source import MAX_BODY, Message, NoPage

PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml", "text/plain", None})
"""Content types of pages. Without one, the bytes tell."""


class WarcSource(FileSource):
    """HTTP responses with status 2xx, and resource and conversion (WET) records, of the types in PAGE_TYPES.

    Only pages with an http or https URL are read: some crawlers store the extracted text beside the page
    under a `urn:`. Other records are counted in `passed_over`. A record that cannot be read is damage of its
    own: the others are read. A body that cannot be decoded, or is too large, makes its page `rejected`.
    """

    def _read(self) -> Iterator[Message]:
        with self._opened() as raw:
            for record in ArchiveReader(Members(raw), MAX_BODY):
                if isinstance(record, DamagedRecord):
                    wrong = f"{self.name} {record.place}: {record.error}"
                    self._note_damage(PageError("damaged_source", wrong))
                elif why := why_no_page(record):
                    self.passed_over[why] += 1
                else:
                    url = target_of(record)
                    yield Message(encode_fields(_fields(record, url)), url, self.name, record.place)

    def no_pages(self) -> Iterator[NoPage]:
        yield from super().no_pages()
        with suppress(*DAMAGED), self._opened() as raw:
            for record in ArchiveReader(Members(raw), MAX_BODY):
                if isinstance(record, DamagedRecord):
                    continue
                if (why := why_no_page(record)) and why != "record_type":
                    yield NoPage(target_of(record), self.name, record.place, why)


def why_no_page(record: ArchiveRecord) -> str | None:
    """The reason why a record has no page, a key of `PASSED_OVER`, or None."""
    if record.kind not in RECORDS or not target_of(record).lower().startswith(("http://", "https://")):
        return "record_type"
    if record.http is not None and not 200 <= record.http.status < 300:
        return "http_status"
    if content_type(content_type_of(record)).kind not in PAGE_TYPES:
        return "content_type"
    return None


def _fields(record: ArchiveRecord, url: str) -> dict[str, Any]:
    """The fields of the page message of a record."""
    read = {
        "url": url,
        "content_type": content_type_of(record),
        "fetched_at": fetched_at_of(record),
        "canonical_url": canonical_url_of(record, url),
    }
    fields = {name: value for name, value in read.items() if value is not None}
    if not record.is_whole:
        return {**fields, "omitted_bytes": record.length}
    body, codings = stored_body(record)
    try:
        return {**fields, "body": decode_content(body, codings, MAX_BODY)}
    except PageError:  # whoever reads the message finds the same, and has the body for its reason
        return {**fields, "body": body, "content_encoding": codings}
