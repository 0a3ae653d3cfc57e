"""Pages that an audit compares with their verdicts: those of a partition, or loaded rows."""

from __future__ import annotations

import abc
from array import array
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.messages.appends import APPEND_ROWS
from stream.messages.journal import LOAD_PARTITIONS

Limits = Mapping[tuple[str, int], int]
"""Topic id or digest, and partition -> an offset."""
NO_LIMIT: Final = 1 << 62


class AuditedPages(abc.ABC):
    """Pages of one topic or directory, with the number of verdicts that each has."""

    topic_id: str
    """Topic id of pages, or digest of the manifest of rows."""
    where: str
    """What a place is, for examples."""
    start: int
    """Offset of the first place."""
    present: NDArray[np.bool_]
    """(n,): whether there is a page."""
    verdicts: NDArray[np.uint16]
    """(n,): number of verdicts."""
    removed = 0
    """Pages that are not compared."""

    @property
    def count(self) -> int:
        """Number of pages."""
        return self.removed + int(self.present.sum())

    def remove(self, mask: NDArray[np.bool_]) -> int:
        """Compare the pages in a mask (n,) no more, and return how many they are."""
        pages = int((self.present & mask).sum())
        self.present &= ~mask
        self.removed += pages
        return pages

    @abc.abstractmethod
    def below(self, limits: Limits) -> NDArray[np.bool_]:
        """Return the mask (n,) of the places with an offset below the limit of their partition, 0 if it has
        none."""

    @property
    @abc.abstractmethod
    def partitions(self) -> list[tuple[str, int]]:
        """Topic id or digest, and partition, of each partition that has places."""


class PartitionPages(AuditedPages):
    """The pages of a partition, from its log start up to the end when the audit read it."""

    def __init__(self, topic_id: str, partition: int, start: int, end: int) -> None:
        self.topic_id, self.partition, self.start = topic_id, partition, start
        self.where = f"partition {partition} offset"
        self.present = np.zeros(end - start, np.bool_)
        self.verdicts = np.zeros(end - start, np.uint16)
        self._published = array("q")

    def add(self, offset: int, timestamp: int, expected: int) -> None:
        """Add a page. Its time is kept if it is not judged, that is, not below the `expected` offset."""
        place = offset - self.start
        if place < len(self.present):
            self.present[place] = True
            if offset >= expected:
                self._published.extend((offset, timestamp))

    def published_at(self, offset: int) -> int | None:
        """Return when the first page from `offset` on was published, in milliseconds since the epoch.

        None if there is none, or if it was judged when it was added.
        """
        published = np.frombuffer(self._published, np.int64).reshape(-1, 2)
        place = int(np.searchsorted(published[:, 0], offset))
        return int(published[place, 1]) if place < len(published) else None

    def remove_without_verdict_below(self, offset: int) -> None:
        """Remove pages without a verdict below an offset, the log start: retention deleted them since they
        were read, and they count as lost if no worker had read them by then."""
        place = max(0, offset - self.start)
        self.present[:place] &= self.verdicts[:place] > 0

    def below(self, limits: Limits) -> NDArray[np.bool_]:
        """See `AuditedPages`."""
        mask = np.zeros(len(self.present), np.bool_)
        mask[: max(0, limits.get((self.topic_id, self.partition), 0) - self.start)] = True
        return mask

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """See `AuditedPages`."""
        return [(self.topic_id, self.partition)]


class RowPages(AuditedPages):
    """The rows of a directory, of which blocks take turns at pseudo-partitions (rule 21)."""

    start = 0

    def __init__(self, digest: str, rows: int) -> None:
        self.topic_id, self.where = digest, f"rows {digest} number"
        self.present = np.ones(rows, np.bool_)
        self.verdicts = np.zeros(rows, np.uint16)

    def below(self, limits: Limits) -> NDArray[np.bool_]:
        """See `AuditedPages`."""
        rows = len(self.present)
        block = np.arange(-(-rows // APPEND_ROWS))
        limit = np.array([limits.get((self.topic_id, each), 0) for each in range(LOAD_PARTITIONS)])
        judged = (limit[block % LOAD_PARTITIONS] - block * APPEND_ROWS).clip(0, APPEND_ROWS)
        mask: NDArray[np.bool_] = np.arange(APPEND_ROWS) < judged[:, None]
        return mask.reshape(-1)[:rows]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """See `AuditedPages`."""
        used = min(LOAD_PARTITIONS, -(-len(self.present) // APPEND_ROWS))
        return [(self.topic_id, partition) for partition in range(used)]
