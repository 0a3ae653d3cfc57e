"""Attempts at pages that took whole workers down: a count in the commits of the group (rule 5).

A worker that is killed says nothing, so it says beforehand what it is about to do. Pure: no Kafka, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stream.kafka.backlog import CHUNK_PAGES
from stream.messages.journal import SourceRange

MOST: Final = 3
"""So many workers end at a page before it is rejected; at the last two of them it was at hand alone."""
CAREFUL_PAGES: Final = CHUNK_PAGES
"""Pages that are tried one by one after an attempt that failed. Were the guilty one further on, the next
attempt that fails is counted from there."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts at what follows a commit that ended with the worker, not in good order."""

    count: int = 0
    page: int | None = None
    """Offset of the page that was at hand alone; None where there were others."""


NONE: Final = Attempts()
SOME: Final = Attempts(1)
"""One, at several pages."""


def metadata_of(topic_id: str, attempts: Attempts) -> str:
    """The metadata of a commit: `TOPICID`, `TOPICID COUNT` or `TOPICID COUNT OFFSET`."""
    words: list[object] = [topic_id]
    if attempts.count:
        words += [attempts.count] if attempts.page is None else [attempts.count, attempts.page]
    return " ".join(map(str, words))


def topic_id_of(metadata: str) -> str:
    """The topic id that a commit was made for; empty where a tool made it."""
    return metadata.partition(" ")[0]


def attempts_of(metadata: str) -> Attempts:
    """The attempts that a commit's metadata tells of; none where it is not ours."""
    numbers = [int(word) for word in metadata.split()[1:] if word.isascii() and word.isdigit()]
    match numbers:
        case [count] if count:
            return SOME
        case [count, page] if count:
            return Attempts(min(count, MOST), page)
    return NONE


@dataclass(slots=True)
class _Position:
    offset: int
    """What is below it is in the journal."""
    found: Attempts
    """As of the assignment."""
    now: Attempts
    """Were the worker to end now."""
    moved: bool = False
    """Whether pages went into the journal under this assignment."""
    careful: int = 0
    """Pages still to be tried one by one."""


class Positions:
    """What a worker commits of the partitions assigned to it: offsets, and attempts at what follows.

    An attempt counts from the first pages that are handed out until some are in the journal, and from when a
    page takes long. What is handed over in good order is as if it had not been attempted.
    """

    def __init__(self) -> None:
        self._positions: dict[int, _Position] = {}

    def take(self, partition: int, offset: int, found: Attempts) -> None:
        """Begin a partition as the group has it."""
        careful = CAREFUL_PAGES if found.count else 0
        self._positions[partition] = _Position(offset, found, found, careful=careful)

    def careful(self, partition: int) -> bool:
        """Whether its pages are to be tried one by one."""
        return self._positions[partition].careful > 0

    @property
    def any_careful(self) -> bool:
        """Whether those of any are."""
        return any(map(self.careful, self._positions))

    def offset(self, partition: int) -> int:
        """Up to which its pages are in the journal."""
        return self._positions[partition].offset

    def begin(self, partitions: Iterable[int]) -> set[int]:
        """Pages of these are about to be handed out, many at once; those whose attempt is to be committed."""
        return {each for each in partitions if not self._positions[each].moved and self._count(each)}

    def slow(self, partition: int) -> bool:
        """A page of it takes long; whether that is to be committed."""
        return self._count(partition)

    def _count(self, partition: int) -> bool:
        position = self._positions[partition]
        if position.now != NONE:
            return False
        position.now = SOME
        return True

    def convicts(self, partition: int, page: int) -> bool:
        """Whether the page, the next one of a careful partition, has had its attempts and is not tried."""
        position = self._positions[partition]
        if position.now != Attempts(MOST, page):
            return False
        position.careful = 1  # the guilty one: those behind it are pages like others
        return True

    def try_alone(self, partition: int, page: int) -> None:
        """The page is about to be handed out, and nothing else is at hand: to be committed."""
        position = self._positions[partition]
        before = position.now.count if position.now.page == page else 1
        position.now = Attempts(before + 1, page)

    def passed(self, partition: int) -> None:
        """The page did no harm: to be committed before anything else is handed out."""
        position = self._positions[partition]
        position.found = position.now = SOME

    def advance(self, ranges: Iterable[SourceRange]) -> None:
        """These are in the journal."""
        for each in ranges:
            position = self._positions[each.partition]
            position.offset = max(position.offset, each.end)
            if each.rows:
                position.moved = True
                position.careful = max(0, position.careful - each.rows)
                position.now = SOME if position.careful else NONE

    def hand_over(self) -> set[int]:
        """The assignment ends in good order; partitions of which that is to be committed."""
        changed = set()
        for partition, position in self._positions.items():
            attempts = NONE if position.moved else position.found
            if position.now != attempts:
                position.now = attempts
                changed.add(partition)
        return changed

    def commits(self, partitions: Collection[int], topic_id: str) -> Mapping[int, tuple[int, str]]:
        """By partition, offset and metadata to commit."""
        found = {each: self._positions[each] for each in partitions}
        return {each: (at.offset, metadata_of(topic_id, at.now)) for each, at in found.items()}
