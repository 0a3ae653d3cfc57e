"""What every source has in common: it yields page messages as they would go on the pages topic."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_MESSAGE: Final = 64 << 20
"""Bytes of the largest message a source yields; memory stays bounded whatever a file holds."""


PASSED_OVER: Final = {
    "http_status": "responses with a status other than 2xx",
    "content_type": "responses that are neither HTML nor text",
    "record_type": "records of other types (requests, metadata, revisits), or without an http URL",
    "suffix": "files without the suffix of a page",
}
"""Why something that a source holds is no page."""


@dataclass(frozen=True, slots=True)
class Message:
    """One page message, not yet keyed: malformed ones travel too, and become `rejected` verdicts."""

    value: bytes
    """The page message's JSON, untouched where the source already is JSON."""
    url_hint: str | None
    """The page's URL as far as the source could tell; a publisher derives the key from it."""
    origin: str
    """Where it was read, for error messages: `crawl.jsonl line 12`."""
    key: bytes | None = None
    """The key that the source itself holds, if any."""


class Source(abc.ABC):
    """Messages in a fixed order, read lazily in constant memory.

    Iterating again reads again from the start (standard input excepted). Iterating raises `PageError`, which
    names file and line or record, where the source itself is damaged: what was yielded before stands.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed_over: Counter[str] = Counter()
        """What was read and is no page, by the keys of `PASSED_OVER`."""

    @property
    @abc.abstractmethod
    def total_bytes(self) -> int | None:
        """Size of what will be read, as stored (compressed); None when unknown."""

    @property
    @abc.abstractmethod
    def bytes_read(self) -> int:
        """How much of `total_bytes` was read so far; readable from another thread."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Message]: ...
