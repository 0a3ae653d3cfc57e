"""The names of a data set's columns, and which of them may be meant by the name of another."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import Final

from stream.errors import PageError
from stream.suggest import meant
from stream.text.url import COARSEST, url_key

USUAL: Final = {
    "url": (
        *("url", "uri", "link", "href", "page_url", "source_url", "web_url", "document_url", "permalink"),
        *("warc_target_uri", "target_uri", "address"),
    ),
    "id": ("id", "doc_id", "docid", "document_id", "page_id", "_id", "uuid", "identifier", "key"),
    "text": (
        *("text", "content", "raw_content", "document", "article", "plain_text", "main_text", "page_text"),
        *("page_content", "body_text", "extracted_text", "full_text", "fulltext", "clean_text"),
        *("article_body", "articlebody", "text_content", "markdown"),
    ),
    "html": ("html", "raw_html", "html_content", "page_html", "source_html", "html_body", "content_html"),
    "fetched_at": (
        *("fetched_at", "timestamp", "fetch_time", "crawled_at", "scraped_at", "crawl_date", "date_download"),
        *("warc_date", "fetched", "date", "time", "datetime", "created_at", "updated_at"),
    ),
    "quality": ("quality", "quality_score", "page_quality", "score", "rating", "rank"),
    "label": ("dump", "source", "dataset", "subset", "crawl", "domain"),
}
"""Usual names of what a page has, the likeliest first."""
MOST: Final = 10_000
"""Most names that are kept,"""
LONGEST: Final = 200
"""and their greatest length, in characters. No longer name is suggested."""
ALIKE: Final = 10
"""Most columns of one usual name that may be suggested."""
_ALL_USUAL: Final = frozenset(name for names in USUAL.values() for name in names)
_FIELDS_OF: Final = {"url": ("url", "id"), "text": ("text", "html")}
_LISTED: Final = 50
"""Most names that an error lists,"""
_LISTED_LENGTH: Final = 100
"""and characters of each."""


Fits = Callable[[str, str], bool]
"""Whether the values of a column, which is named second, can be those of the field that is named first."""


def fits(field: str, value: object) -> bool:
    """Return whether a value that a data set has may be that of the field of a page."""
    if isinstance(value, bool) or value is None or value in ("", b""):
        return False
    if field == "url":
        return isinstance(value, str) and _is_url(value)
    if field == "id":
        return isinstance(value, str | int | float)
    if field == "body":
        return isinstance(value, bytes) or (isinstance(value, str) and _is_base64(value))
    if field in ("text", "html"):
        return isinstance(value, str | bytes)
    return True  # a time or a quality of another type costs no more than what it has now


def _is_url(value: str) -> bool:
    try:
        return bool(url_key(value, COARSEST))
    except PageError:
        return False


def _is_base64(value: str) -> bool:
    try:
        return bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False


class ColumnNames:
    """The names of a data set's columns, in their order; those of nested columns follow the names of their
    structs and a dot.

    Names may be hostile, and come with each row anew: each is looked at once, and MOST of them are kept.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}
        self._usual: dict[str, list[str]] = {}
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
        """Keep the name if it is a usual one: of those that are alike, the first."""
        usual = re.sub(r"[\s-]", "_", name.rpartition(".")[2].lower())
        if usual in _ALL_USUAL and len(alike := self._usual.setdefault(usual, [])) < ALIKE:
            alike.append(name)

    def has_usual(self, lacking: Iterable[str]) -> bool:
        """Return whether there are usual names for one of `url` and `text` that are lacking."""
        fields = [field for need in lacking for field in _FIELDS_OF[need]]
        return any(usual in self._usual for field in fields for usual in USUAL[field])

    def suggested(self, lacking: Iterable[str], fits: Fits) -> dict[str, str]:
        """Return the columns that may be meant, by field, for those of `url` and `text` that are lacking. A
        `body` that is no base64 is one of texts."""
        suggested: dict[str, str] = {}
        for need in lacking:
            for field in _FIELDS_OF[need]:
                if name := self._likeliest(field, fits):
                    suggested[field] = name
                    break
            else:
                if need == "text" and "body" in self._names and fits("text", "body"):
                    suggested["text"] = "body"
        return suggested

    def hint(self, field: str, name: str, fits: Fits) -> str:
        """Return what may be meant by a name that no column has, as the end of a clause."""
        nearest = meant(name, self._names, lambda other: fits(field, other))
        likeliest = None if nearest else self._likeliest(field, fits)
        return nearest or (f"; did you mean {likeliest}?" if likeliest else ";")

    def _likeliest(self, field: str, fits: Fits) -> str | None:
        """Return the likeliest column of a field that fits, the least nested one of those that are alike."""
        for usual in USUAL[field]:
            for name in sorted(self._usual.get(usual, ()), key=lambda each: each.count(".")):
                if fits(field, name):
                    return name
        return None

    def __str__(self) -> str:
        """List them for an error."""
        listed = ", ".join(name[:_LISTED_LENGTH] for name in list(self._names)[:_LISTED])
        more = len(self._names) - _LISTED
        if self._all_kept:
            return (listed or "none") + (f" and {more} more" if more > 0 else "")
        return f"{listed} and over {more} more" if more > 0 else f"{listed or 'none'} and longer names"
