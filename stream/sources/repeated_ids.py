"""Notices data sets that have the same ids, where ids stand in for URLs."""

from __future__ import annotations

from typing import Final, NamedTuple

import xxhash

from stream.pages.columns import ID_URL

SAMPLE: Final = 1 << 14
"""Most ids that are remembered: 4 MB. Of so many, every repeated one is noticed; of more, those whose hashes
end in zeros. Of ten thousand ids that are repeated in ten million, 8 to 16 are."""


class RepeatedId(NamedTuple):
    """Two pages with one id."""

    url: str
    """The URL that stands in for theirs."""
    one: str
    other: str
    """Where they are, such as `crawl.jsonl line 12`."""


class RepeatedIds:
    """Finds the first two pages of one id in different places of the sources that share it."""

    def __init__(self) -> None:
        self.first: RepeatedId | None = None
        self._origins: dict[int, tuple[str, str | None]] = {}
        self._mask = 0

    def add_recrawl(self, url: str | None, origin: str) -> None:
        """Note a page that was judged to be fetched again: an index had its id before."""
        if self.first is None and url is not None and url.startswith(ID_URL):
            self.first = RepeatedId(url, origin, "an earlier page")

    def add(self, url: str | None, file: str, place: str | None) -> None:
        """Note a page, unless its URL is one of its own."""
        if self.first is not None or url is None or not url.startswith(ID_URL):
            return
        key = xxhash.xxh3_64_intdigest(url.encode("utf-8", "replace"))
        if key & self._mask:
            return
        origin = file, place
        earlier = self._origins.setdefault(key, origin)
        if earlier != origin:  # a source may be read twice
            self.first = RepeatedId(url, _shown(earlier), _shown(origin))
            self._origins.clear()
        elif len(self._origins) > SAMPLE:
            self._mask = self._mask << 1 | 1
            self._origins = {key: each for key, each in self._origins.items() if not key & self._mask}


def _shown(origin: tuple[str, str | None]) -> str:
    return " ".join(filter(None, origin))
