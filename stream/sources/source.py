"""The interface of sources, which yield page messages as they are published to the pages topic."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_MESSAGE: Final = 64 << 20
"""Bytes of the largest message that a source yields. It bounds memory, whatever a file contains."""


PASSED_OVER: Final = {
    "http_status": "responses with a status other than 2xx",
    "content_type": "responses that are neither HTML nor text",
    "record_type": "records of other types (requests, metadata, revisits), or without an http URL",
    "suffix": "files without the suffix of a page",
}
"""Reasons why content of a source is passed over as no page, with their descriptions."""


@dataclass(frozen=True, slots=True)
class Message:
    """A page message read from a source. It may be malformed; it then gets a `rejected` verdict."""

    value: bytes
    """The message in JSON, unchanged if the source contains JSON."""
    url_hint: str | None
    """The page's URL, if the source could tell. The message key is derived from it."""
    origin: str
    """The place in the source for error messages, such as `crawl.jsonl line 12`."""
    key: bytes | None = None
    """The message key, if the source has one."""


class Source(abc.ABC):
    """An iterable of messages in a fixed order, read lazily in constant memory.

    Each iteration starts from the beginning, except that standard input can be read only once. Iterating
    raises `PageError`, which names the file and the line or record, if the source is damaged; messages
    yielded before remain valid.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed_over: Counter[str] = Counter()
        """Counts of content that is no page, by the keys of `PASSED_OVER`."""

    @property
    @abc.abstractmethod
    def total_bytes(self) -> int | None:
        """Stored (compressed) size of the source; None if unknown."""

    @property
    @abc.abstractmethod
    def bytes_read(self) -> int:
        """Bytes of `total_bytes` read so far. May be called from another thread."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Message]: ...
