"""Counts attempts at pages that end whole workers, in the metadata of the group's commits (rule 5).

A killed worker cannot report anything, so it commits beforehand what it is about to attempt. Pure: no Kafka,
no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stream.children.chunk import CHUNK_PAGES
from stream.messages.journal import SourceRange

MOST: Final = 3
"""Number of workers that a page may end before it is rejected. In the last two attempts it was tried
alone."""
CAREFUL_PAGES: Final = CHUNK_PAGES
"""Number of pages that are tried one by one after a failed attempt. If the cause is a later page, the next
failed attempt counts from there."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts at the pages after a commit that ended with the death of the worker."""

    count: int = 0
    page: int | None = None
    """Offset of the page that was tried alone; None if there were several."""


NONE: Final = Attempts()
SOME: Final = Attempts(1)
"""One attempt, at several pages."""


def metadata_of(topic_id: str, attempts: Attempts) -> str:
    """Format the metadata of a commit: `TOPICID`, `TOPICID COUNT` or `TOPICID COUNT OFFSET`."""
    words: list[object] = [topic_id]
    if attempts.count:
        words += [attempts.count] if attempts.page is None else [attempts.count, attempts.page]
    return " ".join(map(str, words))


def topic_id_of(metadata: str) -> str:
    """Return the topic id in a commit's metadata; empty if a tool made the commit."""
    return metadata.partition(" ")[0]


def attempts_of(metadata: str) -> Attempts:
    """Return the attempts in a commit's metadata; none if a tool made the commit."""
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
    """Pages below this offset are in the journal."""
    at_assignment: Attempts
    """Attempts at the time of the assignment."""
    now: Attempts
    """Attempts to commit, in case the worker dies now."""
    moved: bool = False
    """Whether pages were appended to the journal during this assignment."""
    careful: int = 0
    """Number of pages still to try one by one."""


class Positions:
    """The offsets and attempts that a worker commits for its assigned partitions.

    An attempt counts from when the first pages are dispatched until some are in the journal, and again once a
    page is slow. An orderly handover of the partition cancels the attempt.
    """

    def __init__(self) -> None:
        self._positions: dict[int, _Position] = {}

    def take(self, partition: int, offset: int, attempts: Attempts) -> None:
        """Start a partition with the group's offset and attempts."""
        careful = CAREFUL_PAGES if attempts.count else 0
        self._positions[partition] = _Position(offset, attempts, attempts, careful=careful)

    def careful(self, partition: int) -> bool:
        """Return whether pages of the partition must be tried one by one."""
        return self._positions[partition].careful > 0

    @property
    def any_careful(self) -> bool:
        """Whether pages of any partition must be tried one by one."""
        return any(map(self.careful, self._positions))

    def offset(self, partition: int) -> int:
        """Return the offset below which the partition's pages are in the journal."""
        return self._positions[partition].offset

    def begin(self, partitions: Iterable[int]) -> set[int]:
        """Record that pages of these partitions will be dispatched. Returns the partitions to commit
        first."""
        return {each for each in partitions if not self._positions[each].moved and self._count(each)}

    def slow(self, partition: int) -> bool:
        """Record that a page of the partition is slow. Returns whether to commit that."""
        return self._count(partition)

    def _count(self, partition: int) -> bool:
        position = self._positions[partition]
        if position.now != NONE:
            return False
        position.now = SOME
        return True

    def exhausted(self, partition: int, page: int) -> bool:
        """Return whether the page, the next one of a careful partition, has used up its attempts."""
        position = self._positions[partition]
        if position.now != Attempts(MOST, page):
            return False
        position.careful = 1  # this page is the cause: later pages are tried together again
        return True

    def try_alone(self, partition: int, page: int) -> None:
        """Record that the page will be dispatched alone. Commit before doing so."""
        position = self._positions[partition]
        before = position.now.count if position.now.page == page else 1
        position.now = Attempts(before + 1, page)

    def passed(self, partition: int) -> None:
        """Record that the page succeeded. Commit before dispatching anything else."""
        position = self._positions[partition]
        position.at_assignment = position.now = SOME

    def advance(self, ranges: Iterable[SourceRange]) -> None:
        """Record that these ranges are in the journal."""
        for each in ranges:
            position = self._positions[each.partition]
            position.offset = max(position.offset, each.end)
            if each.rows:
                position.moved = True
                position.careful = max(0, position.careful - each.rows)
                position.now = SOME if position.careful else NONE

    def hand_over(self) -> set[int]:
        """Cancel attempts, as the assignment ends in an orderly way. Returns the partitions to commit."""
        changed = set()
        for partition, position in self._positions.items():
            attempts = NONE if position.moved else position.at_assignment
            if position.now != attempts:
                position.now = attempts
                changed.add(partition)
        return changed

    def commits(self, partitions: Collection[int], topic_id: str) -> Mapping[int, tuple[int, str]]:
        """Return partition -> (offset, metadata) to commit."""
        at_assignment = {each: self._positions[each] for each in partitions}
        return {each: (at.offset, metadata_of(topic_id, at.now)) for each, at in at_assignment.items()}
