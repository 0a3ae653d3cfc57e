"""What is odd about the pages of sources and rejects none of them, for the summaries of commands."""

from __future__ import annotations

from typing import Final, NamedTuple

from stream.fingerprint.row import NO_DIGEST, NO_HASH, Row
from stream.pages.columns import ID_URL
from stream.sources.repeated_ids import SAMPLE

YEAR: Final = 365 * 86_400_000
"""Milliseconds of 1970."""


class SharedUrl(NamedTuple):
    """Two pages of one URL with different texts, whose times do not tell which of them came later."""

    url: str
    one: str
    other: str
    """Where they are, such as `crawl.jsonl line 12`."""


class RowWarnings:
    """Counts of pages that a user may have meant otherwise."""

    def __init__(self) -> None:
        self.quality_ignored = 0
        """Pages whose quality is no finite number."""
        self.in_1970 = 0
        """Pages with a time in 1970, as seconds give that are read as milliseconds."""
        self.shared_url: SharedUrl | None = None
        """The first pages of one URL with different texts, of a sample of URLs as large as that of ids."""
        self._seen: dict[int, tuple[bytes, int | None, object]] = {}
        """Beginning of the URL's digest -> hash of the text, time and origin of its first page."""
        self._mask = 0

    def count(self, row: Row, origin: object) -> None:
        """Count a page. Its origin is shown by `str` if it is named."""
        self.quality_ignored += row.quality_ignored
        if row.fetched_at is not None and 0 <= row.fetched_at < YEAR:
            self.in_1970 += 1
        if self.shared_url is None and row.url_digest != NO_DIGEST and row.text_hash != NO_HASH:
            self._compare(row, origin)

    def _compare(self, row: Row, origin: object) -> None:
        key = int.from_bytes(row.url_digest[:8], "little")
        if key & self._mask or row.url is None or row.url.startswith(ID_URL):
            return
        text_hash, fetched_at, first = self._seen.setdefault(key, (row.text_hash, row.fetched_at, origin))
        if text_hash != row.text_hash and fetched_at == row.fetched_at:
            self.shared_url = SharedUrl(row.url, str(first), str(origin))
            self._seen.clear()
        elif len(self._seen) > SAMPLE:
            self._mask = self._mask << 1 | 1
            self._seen = {key: each for key, each in self._seen.items() if not key & self._mask}
