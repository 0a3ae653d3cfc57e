"""The names of a data set's columns, and which of them may be meant by the name of another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from stream.suggest import meant

USUAL: Final = {
    "url": (
        *("url", "uri", "link", "href", "page_url", "source_url", "web_url", "document_url", "permalink"),
        *("warc_target_uri", "target_uri", "address"),
    ),
    "id": ("id", "doc_id", "docid", "document_id", "page_id", "_id", "uuid", "identifier", "key"),
    "text": (
        *("text", "content", "raw_content", "document", "article", "plain_text", "main_text", "page_text"),
        *("page_content", "body_text", "extracted_text", "markdown"),
    ),
    "html": ("html", "raw_html", "html_content", "page_html", "source_html", "html_body", "content_html"),
    "fetched_at": (
        *("fetched_at", "timestamp", "fetch_time", "crawled_at", "scraped_at", "crawl_date", "date_download"),
        *("warc_date", "fetched", "date", "time", "datetime", "created_at", "updated_at"),
    ),
    "quality": ("quality", "quality_score", "page_quality", "score", "rating", "rank"),
}
"""Usual names of what a page has, the likeliest first."""
MOST: Final = 10_000
"""Most names that are kept,"""
LONGEST: Final = 200
"""and their greatest length, in characters. No longer name is suggested."""
_ALL_USUAL: Final = frozenset(name for names in USUAL.values() for name in names)
_LISTED: Final = 50
"""Most names that an error lists,"""
_LISTED_LENGTH: Final = 100
"""and characters of each."""


class ColumnNames:
    """The names of a data set's columns, in their order; those of nested columns follow the names of their
    structs and a dot.

    Names may be hostile, and come with each row anew: each is looked at once, and MOST of them are kept.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}
        self._usual: dict[str, str] = {}
        self._all_kept = True
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Add the names of a row that were not there yet."""
        for name in names:
            if name in self._names:
                continue
            if len(name) <= LONGEST:
                self._add_usual(name)
            if len(name) <= LONGEST and len(self._names) < MOST:
                self._names[name] = None
            else:
                self._all_kept = False

    def _add_usual(self, name: str) -> None:
        """Keep the name if it is a usual one: of those that are alike, the first of the least nested."""
        usual = re.sub(r"[\s-]", "_", name.rpartition(".")[2].lower())
        if usual in _ALL_USUAL:
            before = self._usual.get(usual)
            if before is None or name.count(".") < before.count("."):
                self._usual[usual] = name

    def suggested(self, lacking: Iterable[str]) -> dict[str, str]:
        """Return the columns that may be meant, by field, for those of `url` and `text` that are lacking."""
        suggested: dict[str, str] = {}
        for need in lacking:
            for field in ("url", "id") if need == "url" else ("text", "html"):
                if name := self._likeliest(field):
                    suggested[field] = name
                    break
        return suggested

    def hint(self, field: str, name: str) -> str:
        """Return what may be meant by a name that no column has, as the end of a clause."""
        likeliest = self._likeliest(field)
        return meant(name, self._names) or (f"; did you mean {likeliest}?" if likeliest else ";")

    def _likeliest(self, field: str) -> str | None:
        return next((self._usual[each] for each in USUAL[field] if each in self._usual), None)

    def __str__(self) -> str:
        """List them for an error."""
        listed = ", ".join(name[:_LISTED_LENGTH] for name in list(self._names)[:_LISTED])
        more = len(self._names) - _LISTED
        if self._all_kept:
            return (listed or "none") + (f" and {more} more" if more > 0 else "")
        return f"{listed} and over {more} more" if more > 0 else f"{listed or 'none'} and longer names"
