"""What every source has in common: it yields page messages as they would go on the pages topic."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_MESSAGE: Final = 64 << 20
"""Bytes of the largest message a source yields; memory stays bounded whatever a file holds."""


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
