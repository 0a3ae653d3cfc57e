"""What is odd about the pages of sources and rejects none of them, for the summaries of commands."""

from __future__ import annotations

from typing import Final, NamedTuple

from stream.fingerprint.row import NO_DIGEST, NO_HASH, Row
from stream.pages.columns import ID_URL
from stream.sources.repeated_ids import SAMPLE

YEAR: Final = 365 * 86_400_000
"""Milliseconds of 1970."""
LITTLE: Final = 0.1
"""Share of the visible text of a page, below which it says little about the page,"""
LARGE: Final = 1000
"""if so many characters are visible."""


class SharedUrl(NamedTuple):
    """Two pages of one URL with different texts, whose times do not tell which of them came later."""

    url: str
    one: str
    other: str
    """Where they are, such as `crawl.jsonl line 12`."""


class SharedText(NamedTuple):
    """Large pages that are the same by a small share of their visible text."""

    pages: int
    one: object
    other: object
    """Where the first two are; shown by `str`."""


class RowWarnings:
    """Counts of pages that a user may have meant otherwise."""

    def __init__(self) -> None:
        self.quality_ignored = 0
        """Pages whose quality is no finite number."""
        self.in_1970 = 0
        """Pages with a time in 1970, as seconds give that are read as milliseconds."""
        self.shared_url: SharedUrl | None = None
        """The first pages of one URL with different texts, of a sample of URLs as large as that of ids."""
        self.little_compared = 0
        """Large pages of whose visible text less than LITTLE is compared."""
        self._seen: dict[int, tuple[bytes, int | None, object]] = {}
        """Beginning of the URL's digest -> hash of the text, time and origin of its first page."""
        self._mask = 0
        self._compared = self._visible = 0.0
        """Characters of HTML pages."""
        self._texts: dict[bytes, SharedText] = {}
        """Hash of the text -> pages of `little_compared`, at least the texts of the most."""

    @property
    def compared_share(self) -> float | None:
        """The share of the visible text of all HTML pages that is compared; None without any."""
        return self._compared / self._visible if self._visible else None

    @property
    def shared_text(self) -> SharedText | None:
        """The text of the most pages of `little_compared`, if it is that of several."""
        most = max(self._texts.values(), key=lambda each: each.pages, default=None)
        return most if most is not None and most.pages > 1 else None

    def summary(self) -> dict[str, float | None]:
        """Return what summaries in JSON have."""
        share, text = self.compared_share, self.shared_text
        return {
            "quality_ignored": self.quality_ignored,
            "in_1970": self.in_1970,
            "compared_share": None if share is None else round(share, 3),
            "little_compared": self.little_compared,
            "little_compared_alike": text.pages if text else 0,
        }

    def count(self, row: Row, origin: object) -> None:
        """Count a page. Its origin is shown by `str` if it is named."""
        self.quality_ignored += row.quality_ignored
        if row.fetched_at is not None and 0 <= row.fetched_at < YEAR:
            self.in_1970 += 1
        if row.share is not None:
            self._count_share(row, row.share, origin)
        if self.shared_url is None and row.url_digest != NO_DIGEST and row.text_hash != NO_HASH:
            self._compare(row, origin)

    def _count_share(self, row: Row, share: float, origin: object) -> None:
        visible = row.length / share
        self._compared += row.length
        self._visible += visible
        if share >= LITTLE or visible < LARGE:
            return
        self.little_compared += 1
        if not row.ready:
            return
        pages, one, other = self._texts.get(row.text_hash, SharedText(0, origin, origin))
        self._texts[row.text_hash] = SharedText(pages + 1, one, origin if pages == 1 else other)
        if len(self._texts) > SAMPLE:  # texts of many pages stay (Misra and Gries, Finding repeated elements)
            self._texts = {
                text: each._replace(pages=each.pages - 1)
                for text, each in self._texts.items()
                if each.pages > 1
            }

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
