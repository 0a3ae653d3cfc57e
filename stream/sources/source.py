"""The interface of sources, which yield page messages as they are published to the pages topic."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stream.errors import PageError
from stream.pages.columns import NO_COLUMNS, Columns
from stream.sources.repeated_ids import RepeatedIds

MAX_MESSAGE: Final = 64 << 20
"""Bytes of the largest message that a source yields. It bounds memory, whatever a file contains."""
MAX_BODY: Final = MAX_MESSAGE // 4 * 3 - (1 << 20)
"""Most bytes of a body that a message has: in base64, with the other fields. Of a larger one it has the size
alone."""


PASSED_OVER: Final = {
    "http_status": "responses with a status other than 2xx",
    "content_type": "responses that are neither HTML nor text",
    "record_type": "records of other types (requests, metadata, revisits), or without an http URL",
    "beside": "files beside data that are none, such as README and _SUCCESS",
    "suffix": "files without the suffix of a page that do not begin as HTML",
}
"""Reasons why content of a source is passed over as no page, with their descriptions."""


@dataclass(frozen=True, slots=True)
class Message:
    """A page message read from a source. It may be malformed; it then gets a `rejected` verdict."""

    value: bytes
    """The message in JSON, unchanged if the source contains JSON."""
    url_hint: str | None
    """The page's URL, if the source could tell. The message key is derived from it."""
    file: str
    """What it was read from: a file, `-`, or the name of a page that was made."""
    place: str | None = None
    """Where in the file, such as `line 12`; None if it has no other page."""
    key: bytes | None = None
    """The message key, if the source has one."""
    columns: Columns = NO_COLUMNS
    """Names that the file has for fields of the message."""

    @property
    def origin(self) -> str:
        """File and place, such as `crawl.jsonl line 12`, for error messages."""
        return self.file if self.place is None else f"{self.file} {self.place}"


class NoPage(NamedTuple):
    """Content of a source that is passed over."""

    url: str | None
    file: str
    place: str | None
    reason: str
    """A key of `PASSED_OVER`."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a source could not be read."""

    error: str
    """The place and the cause, such as `crawl.jsonl.gz after line 12: ...`."""
    pages: int
    """Pages of the source that were read before it."""


LISTED: Final = 100
"""Most damages of a source that are kept: a directory may have a million files that cannot be opened."""


class Source(abc.ABC):
    """An iterable of messages in a fixed order, read lazily in constant memory.

    Each iteration starts from the beginning, except that standard input can be read only once. If the source
    is damaged, iterating raises `PageError`, which names the file and the line or record; messages yielded
    before remain valid. If it is not `strict`, iterating ends there instead and notes the damage.
    """

    def __init__(self, name: str) -> None:
        self.name = self.argument = name
        """`argument` is what a command was given, such as the directory that the source is a file of."""
        self.columns = NO_COLUMNS
        self.strict = True
        self.damages: list[Damage] = []
        """The first LISTED damages of the last iteration."""
        self.damage_count = 0
        self.pages = 0
        """Pages read by the last iteration."""
        self.repeated_ids: RepeatedIds | None = None
        """Where ids of pages are noted: sources that are opened together share one."""
        self.passed_over: Counter[str] = Counter()
        """Counts of content that is no page, by the keys of `PASSED_OVER`."""
        self.beside: Sequence[str] = ()
        """Files beside it that are no data."""

    @property
    @abc.abstractmethod
    def total_bytes(self) -> int | None:
        """Stored (compressed) size of the source; None if unknown."""

    @property
    @abc.abstractmethod
    def bytes_read(self) -> int:
        """Bytes of `total_bytes` read so far. May be called from another thread."""

    def __iter__(self) -> Iterator[Message]:
        self.damages, self.damage_count, self.pages = [], 0, 0
        self.passed_over.clear()
        if self.beside:
            self.passed_over["beside"] = len(self.beside)
        try:
            for message in self._read():
                self.pages += 1
                if self.repeated_ids is not None:
                    self.repeated_ids.add(message.url_hint, message.file, message.place)
                yield message
        except PageError as error:
            self._note_damage(error)

    def no_pages(self) -> Iterator[NoPage]:
        """Yield what `passed_over` counts, with its place, in order, but records of other types. It reads
        the source once more, up to damage."""
        return (NoPage(None, file, None, "beside") for file in self.beside)

    @abc.abstractmethod
    def _read(self) -> Iterator[Message]:
        """Yield the messages. Raises PageError for damage."""

    def _note_damage(self, error: PageError) -> None:
        """Note what could not be read, or raise the error if the source is strict."""
        if self.strict:
            raise error
        self.damage_count += 1
        if len(self.damages) < LISTED:
            self.damages.append(Damage(error.detail, self.pages))


def arguments_of(sources: Sequence[Source]) -> Callable[[str], str]:
    """Return what gives the argument of a command by which a file was read, or the file if none is known."""
    arguments = {each.name.rstrip("/"): each.argument for each in sources}

    def argument_of(file: str) -> str:
        place = file
        while place not in arguments and "/" in place:
            place = place.rpartition("/")[0]  # saved pages are below their source
        return arguments.get(place, file)

    return argument_of


def refuse_unreadable(sources: Sequence[Source]) -> None:
    """Raise PageError if damage is all that was read of the sources: there is nothing to make of them."""
    damages = [damage for source in sources for damage in source.damages]
    if damages and not any(source.pages for source in sources):
        raise PageError("damaged_source", f"{damages[0].error}; no page could be read")
