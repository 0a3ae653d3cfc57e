"""Turns pages and page messages into rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from stream.errors import PageError
from stream.fingerprint.fingerprinter import Fingerprint, Fingerprinter
from stream.fingerprint.row import MAX_DETAIL, NO_DIGEST, WORD, Row, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import url_hasher
from stream.pages.columns import Columns
from stream.pages.content import Content, declared_language, page_content
from stream.pages.fields import fields_of_page
from stream.pages.outside.outside import Outside
from stream.pages.page import PAGE_BYTES, Page, PageMessageError, decode_page, page_of_fields
from stream.text.extract import extract
from stream.text.url import MAX_URL, page_key, url_key


class ReadPage(NamedTuple):
    """A page whose text is extracted but not yet fingerprinted."""

    url: str
    url_key: str
    fetched_at: int | None
    text: str
    language: str = ""
    """See `Row.language`."""
    quality: float | None = None
    """See `Row.quality`."""
    visible: str = ""
    """See `Extract.visible`."""
    share: float | None = None
    """See `Row.share`."""


class PageFingerprinter(Fingerprinter):
    """Fingerprints pages and page messages, too: each becomes a row."""

    def __init__(self, scheme: Scheme | None = None, seed: bytes | None = None) -> None:
        super().__init__(scheme, seed)
        self._url_rules = self.scheme.url_rules
        self.url_digest = url_hasher(self.seed)
        """Returns the digest of a URL key."""

    def warm(self) -> None:
        """Load what texts need, and what extraction from HTML needs, so that no page has to wait for it."""
        super().warm()
        extract("")

    def page(self, page: Page, page_bytes: int = PAGE_BYTES) -> Row:
        """Return the journal row of a page, which equals that of its message. If the page cannot be
        fingerprinted, the row is rejected, with a reason."""
        return self._row_of(self.validate(page, page_bytes))

    def message(self, value: bytes | None, page_bytes: int) -> Row:
        """Return the journal row of a page message's value, of at most `page_bytes` once decompressed."""
        return self._row_of(self.decode(value, page_bytes))

    def _row_of(self, page: Page | Row) -> Row:
        return self.rows_of([self.read_page(page)])[0]

    def decode(self, value: bytes | None, page_bytes: int, outside: Outside | None = None) -> Page | Row:
        """Return the page in a message's value, or the row that rejects it. Raises FetchNeededError if
        `outside` has to fetch something first."""
        return self._decode_or_reject(lambda: decode_page(value, page_bytes, outside))

    def page_of_fields(self, fields: dict[str, Any], page_bytes: int) -> Page | Row:
        """Return the page in the fields of a message, or the row that rejects it, as from their JSON."""
        return self._decode_or_reject(lambda: page_of_fields(fields, page_bytes))

    def validate(self, page: Page, page_bytes: int) -> Page | Row:
        """Return the page as its message has it, or the row that rejects it, since a `Page` can be made of
        anything. Pages that are decoded from messages are valid."""
        return self.page_of_fields(fields_of_page(page), page_bytes)

    def _decode_or_reject(self, decode: Callable[[], Page]) -> Page | Row:
        try:
            return decode()
        except PageMessageError as error:
            return self._reject(error, error.url, error.fetched_at)

    def url_key(self, url: str) -> str:
        """Return the key of a URL. Raises PageError `bad_url`."""
        return url_key(url, self._url_rules)

    def read_page(self, page: Page | Row) -> ReadPage | Row:
        """Return the page with its text, or the row that rejects it, perhaps already when it was decoded."""
        if isinstance(page, Row):
            return page
        try:
            key, content = self.read_content(page)
            extract, language = content.extract(), declared_language(page)
            return ReadPage(
                page.url,
                key,
                page.fetched_at,
                extract.text,
                language,
                page.quality,
                extract.visible,
                extract.share if content.is_html else None,
            )
        except PageError as error:
            return self._reject(error, page.url, page.fetched_at)

    def read_content(self, page: Page) -> tuple[str, Content]:
        """Return the URL key of a page, and its content. Raises PageError like `url_key` and
        `page_content`."""
        key, rules = self.url_key(page.url), self._url_rules
        content = page_content(page)
        if rules.redirected or rules.canonical:
            canonical = content.canonical_url(page) if rules.canonical else None
            key = page_key(key, page.redirected_from, canonical, rules)
        return key, content

    def rows_of(self, read: Sequence[ReadPage | Row]) -> list[Row]:
        """Return the journal rows of pages, of which some are rejected already."""
        made = iter(self.rows([each for each in read if not isinstance(each, Row)]))
        return [each if isinstance(each, Row) else next(made) for each in read]

    def rows(self, pages: Sequence[ReadPage]) -> list[Row]:
        """Return the journal rows of a batch of pages."""
        fingerprints = self.texts([page.text for page in pages])
        return [self._row(page, fingerprint) for page, fingerprint in zip(pages, fingerprints, strict=True)]

    def status(self, result: Fingerprint) -> Status:
        """Return the status of a page with this fingerprint."""
        if result.tokens < self.scheme.minimum_tokens or not result.features:
            return Status.INSUFFICIENT
        return Status.SHORT if result.tokens < self.scheme.short_tokens else Status.READY

    def text_hash(self, result: Fingerprint, visible: str) -> bytes:
        """Return the hash of a page's text: of all that is `visible` of it, if its main content, of which
        `result` is, is too little to be compared."""
        if visible and self.status(result) == Status.INSUFFICIENT:
            return self.text(visible).text_hash
        return result.text_hash

    def _row(self, page: ReadPage, result: Fingerprint) -> Row:
        status = self.status(result)
        fingerprint: dict[str, Any] = {}
        if status != Status.INSUFFICIENT:
            fingerprint = {
                "low": result.fingerprint & (1 << WORD) - 1,
                "high": result.fingerprint >> WORD,
                "sketch": result.sketch,
            }
        return Row(
            status,
            page.url,
            page.fetched_at,
            self.url_digest(page.url_key),
            text_hash=self.text_hash(result, page.visible),
            length=result.length,
            language=page.language,
            quality=page.quality,
            share=page.share,
            **fingerprint,
        )

    def _reject(self, error: PageError, url: str | None, fetched_at: int | None) -> Row:
        """Return the row of a page that cannot be fingerprinted, with the digest of its own URL if that has
        one. A URL longer than MAX_URL is dropped, since rows must stay small."""
        digest = NO_DIGEST
        if url is not None:
            url = None if len(url) > MAX_URL else url
        if url is not None and error.reason != "bad_url":
            with suppress(PageError):
                digest = self.url_digest(self.url_key(url))
        reason, detail = error.reason, error.detail[:MAX_DETAIL] or None
        return Row(Status.REJECTED, url, fetched_at, digest, reason=reason, detail=detail)


def with_columns_named(row: Row, columns: Columns) -> Row:
    """Return the row of a page, whose detail names the columns of its source in place of the message's
    fields."""
    if row.detail is None or not columns.names:
        return row
    return msgspec.structs.replace(row, detail=columns.translate(row.detail)[:MAX_DETAIL])


def labelled(row: Row, label: str | None) -> Row:
    """Return the row of a page with its label, which is that of the source's column."""
    return row if label is None else msgspec.structs.replace(row, label=label)
