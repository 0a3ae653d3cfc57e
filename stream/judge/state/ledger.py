"""Tracks the judged offsets of source partitions, to drop redelivered rows and detect gaps (rules 1, 4,
7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.messages.decision import SourceProgress
from stream.messages.journal import LOAD, Rows, SourceRange
from stream.tables.store.contents import union

SourceKey = tuple[str, str, int]
"""(Kafka cluster id, topic id, partition)."""


@dataclass(frozen=True, slots=True)
class SourceGap:
    """Pages of a partition are missing from the journal. The partition waits until they arrive."""

    cluster: str
    topic: str
    topic_id: str
    partition: int
    expected: int | None
    """Next expected offset; None if the journal has no opening of this partition."""
    start: int

    @property
    def source(self) -> SourceKey:
        """Key of the source partition."""
        return self.cluster, self.topic_id, self.partition

    def __str__(self) -> str:
        if self.expected is None:
            missing, cure = "from its opening", "the log start (--to-earliest)"
        else:
            missing, cure = f"from offset {self.expected}", f"{self.expected} (--to-offset {self.expected})"
        if self.topic == LOAD:
            return (
                f"source_gap: loaded rows with the digest {self.topic_id}: rows {missing} up to {self.start} "
                "are missing; run `neardup load` with these rows again"
            )
        return (
            f"source_gap: {self.topic}[{self.partition}] (topic id {self.topic_id}): pages {missing} "
            f"up to {self.start} are missing; stop the workers, set their group to {cure}, start them"
        )


@dataclass(slots=True)
class Admission:
    """The changes of a batch of records to the ledger."""

    progress: dict[SourceKey, SourceProgress] = field(default_factory=dict)
    gaps: list[SourceGap] = field(default_factory=list)
    redelivered: int = 0
    """Number of rows dropped because they were already judged."""


class Ledger:
    """The next expected offset of every source partition."""

    def __init__(self, progress: Iterable[SourceProgress] = ()) -> None:
        self.progress: dict[SourceKey, SourceProgress] = {}
        self.digest = 0
        """Digest of the progress of all sources."""
        self.apply(progress)

    def admit(self, rows: Rows, so_far: Admission) -> NDArray[np.bool_]:
        """Return the mask (n,) of rows to judge. Changes are recorded in `so_far` only."""
        admitted = np.zeros(len(rows), bool)
        first = 0
        for each in rows.ranges:
            expected = self._admit_range(each, so_far)
            if expected is not None:
                part = slice(first, first + each.rows)
                admitted[part] = rows.offset[part] >= expected
                so_far.redelivered += each.rows - int(admitted[part].sum())
            first += each.rows
        return admitted

    def _admit_range(self, each: SourceRange, so_far: Admission) -> int | None:
        """Return the offset from which rows of the range are judged, or None if the range follows a gap."""
        key = (each.cluster, each.topic_id, each.partition)
        before = so_far.progress.get(key) or self.progress.get(key)
        expected, lost = (before.expected, before.lost) if before else (None, 0)
        if expected is None or each.start > expected:
            if not each.opening:
                so_far.gaps.append(
                    SourceGap(each.cluster, each.topic, each.topic_id, each.partition, expected, each.start)
                )
                return None
            # An opening states that the log starts here, so earlier offsets are lost for good.
            lost += 0 if expected is None else each.start - expected
            expected = each.start
        if each.end > expected:
            lost += each.end - expected if each.lost else 0
            so_far.progress[key] = SourceProgress(
                each.cluster, each.topic, each.topic_id, each.partition, each.end, lost
            )
        elif before is None or expected > before.expected:
            # An empty opening has no rows, but defines the partition's position.
            so_far.progress[key] = SourceProgress(
                each.cluster, each.topic, each.topic_id, each.partition, expected, lost
            )
        return expected

    def waits(self, gap: SourceGap) -> bool:
        """Return whether the source still waits, i.e. nothing of it was judged since the gap."""
        now = self.progress.get(gap.source)
        return gap.expected == (now.expected if now else None)

    def in_order(self) -> list[SourceProgress]:
        """Return the progress of all sources, in order of cluster, topic id and partition."""
        return [self.progress[key] for key in sorted(self.progress)]

    def apply(self, progress: Iterable[SourceProgress]) -> None:
        """Apply decided progress."""
        for each in progress:
            before = self.progress.get(key_of(each))
            self.digest = union(self.digest, _digest(each), -_digest(before) if before else 0)
            self.progress[key_of(each)] = each


def _digest(progress: SourceProgress) -> int:
    return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(progress))


def key_of(progress: SourceProgress) -> SourceKey:
    """Return the key of a progress's source partition."""
    return progress.cluster, progress.topic_id, progress.partition
