"""Runs: consecutive anchors in RocksDB, sorted by prefix, with a column family per table.

A run of level 0 is one generation. The runs of a level are numbered. As soon as there are `MERGED`
consecutive ones, from a multiple of `MERGED` on, they are merged into a run of the next level, up to
`LEVELS`. Once all due merges are done, the set of runs depends only on the number of anchors.

Family `table-tt`: the key is run and group, 8 bytes. The value is the entries of the group, 16 bytes each,
sorted by prefix, then number: fingerprint u64 LE, number u32 LE, low bits of the prefix u32 LE. Numbers are
relative to the run's first anchor. Anchors that were gone when the run was built are left out. A group has
all entries that share the high bits of the prefix, about `GROUP` of them. So a probe reads one small value,
and a run of a million anchors takes thirty thousand puts per table instead of a million.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables.arrays import U64
from stream.tables.design import Design

LEVELS: Final = 2
"""Highest level. Its runs, of 64 generations each, are not merged further, since the cost of a merge grows
with its size, and even `MOST_ANCHORS` have few runs of this level."""
MERGED: Final = 8
"""Runs of a level that are merged into one of the next. A search has a cost per run; each level costs another
copy."""
GROUP: Final = 32
"""Average entries per group if prefixes are uniformly distributed."""
LOW_BITS: Final = 32
"""Most bits of a prefix in an entry."""
ENTRY_BYTES: Final = 16

_LEVEL_PLACE: Final = 56
_NUMBER_PLACE: Final = 32
_MOST_NUMBER: Final = 1 << (_LEVEL_PLACE - _NUMBER_PLACE)


class Run(NamedTuple):
    """The anchors [first, first + anchors), which its level and number determine. Those that were gone when
    it was built have no entries."""

    level: int
    number: int
    """Its number among the runs of its level."""
    first: int
    """Number of its first anchor."""
    anchors: int

    @property
    def end(self) -> int:
        """Number after its last anchor."""
        return self.first + self.anchors

    @property
    def key(self) -> int:
        """The key of its first group as a 64-bit integer. Those of the others differ in the lower 32 bits."""
        return _key(self.level, self.number)

    @property
    def record(self) -> bytes:
        """The number of its first anchor, and how many there are, as `stored_run` reads them."""
        return np.array([self.first, self.anchors], "<u8").tobytes()

    @property
    def next_generation(self) -> int:
        """Number of the generation that follows it."""
        return (self.number + 1) * int(MERGED**self.level)

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of the run and of all earlier ones of its level."""
        return _bounds(self.level, 0, self.number + 1)

    def is_part_of(self, merged: Run) -> bool:
        """Whether it is one of those from which a run is merged."""
        return (self.level + 1, self.number // MERGED) == (merged.level, merged.number)

    @property
    def bounds_of_parts(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of its parts."""
        return _bounds(self.level - 1, self.number * MERGED, (self.number + 1) * MERGED)

    @property
    def bounds_to_parts(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of its parts and of all earlier runs of their level."""
        return _bounds(self.level - 1, 0, (self.number + 1) * MERGED)

    def low_bits(self, design: Design) -> NDArray[np.int64]:
        """Bits of each table's prefix that are in the entries rather than in the group's key, shape (T,)."""
        low = design.prefix_bits - max(0, (self.anchors // GROUP - 1).bit_length())
        return np.clip(low, 0, LOW_BITS)


def _key(level: int, number: int) -> int:
    return (level << _LEVEL_PLACE) + (number << _NUMBER_PLACE)


def _bounds(level: int, start: int, end: int) -> tuple[bytes, bytes]:
    return _key(level, start).to_bytes(8, "big"), _key(level, end).to_bytes(8, "big")


def generation_after(last: Run | None, first: int, anchors: int) -> Run:
    """The run of the next generation of so many anchors after the last run that has anchors from `first` on.
    Raises StateError if its number does not fit in keys."""
    number, start = (last.next_generation, last.end) if last else (0, 0)
    gone = max(0, first - start) // anchors
    number, start = number + gone, start + gone * anchors
    if number >= _MOST_NUMBER:
        raise StateError(f"tables_generation: {number} generations of {anchors} anchors are too many")
    return Run(0, number, start, anchors)


def merged_run(parts: list[Run]) -> Run:
    """The run of the next level into which runs are merged."""
    first, last = parts[0].first, parts[-1]
    return Run(last.level + 1, last.number // MERGED, first, last.end - first)


def stored_run(key: bytes, record: bytes) -> Run:
    """A run by its level u8 and number u24, BE, and by `Run.record`. Raises ValueError."""
    first, anchors = np.frombuffer(record, "<u8").tolist()
    return Run(key[0], int.from_bytes(key[1:], "big"), first, anchors)


def group_keys(groups: U64) -> list[bytes]:
    """RocksDB keys of groups, given as `Run.key` | group."""
    keys: list[bytes] = groups.astype(">u8").view("V8").tolist()
    return keys
