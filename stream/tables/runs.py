"""Runs: anchors of whole generations, in RocksDB, sorted by prefix, one column family a table.

A run of level 0 is one generation. As soon as `MERGED` runs of a level follow each other from a multiple of
`MERGED` on, they become one of the next level, up to `LEVELS`: which runs there are once nothing is due
depends on the number of anchors alone.

Family `table-tt`: key = run and group, 8 bytes; value = the group's entries, 16 bytes each, in order of
prefix, then number: fingerprint u64 LE, then number u32 LE, then the prefix's low bits u32 LE. A group is all
that has the high bits of a prefix in common, `GROUP` entries or so: a probe reads one small value, and a run
of a million anchors is built by thirty thousand puts a table instead of a million.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.tables.arrays import U64
from stream.tables.design import Design

LEVELS: Final = 2
"""Above generations. Runs of the last level, 64 generations each, are not merged: building one sorts as many
times more anchors as it is larger, slice after slice, and those of 2**32 anchors are few."""
MERGED: Final = 8
"""Runs of a level that become one of the next. Searching costs something a run; merging, a copy a level."""
GROUP: Final = 32
"""Entries of a group on average, where prefixes are as good as random."""
LOW_BITS: Final = 32
"""Most bits of a prefix that an entry holds."""
ENTRY_BYTES: Final = 16

_LEVEL_PLACE: Final = 56
_NUMBER_PLACE: Final = 32
_MOST_NUMBER: Final = 1 << (_LEVEL_PLACE - _NUMBER_PLACE)


class Run(NamedTuple):
    """The anchors [number * anchors, (number + 1) * anchors)."""

    level: int
    number: int
    anchors: int

    @property
    def first(self) -> int:
        """Number of its first anchor."""
        return self.number * self.anchors

    @property
    def end(self) -> int:
        """Number after its last anchor."""
        return self.first + self.anchors

    @property
    def key(self) -> int:
        """What the keys of its groups start with, as a number of 64 bits."""
        return self.level << _LEVEL_PLACE | self.number << _NUMBER_PLACE

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The lowest key of its groups, and the one after the highest."""
        return self.key.to_bytes(8, "big"), (self.key + (1 << _NUMBER_PLACE)).to_bytes(8, "big")

    @property
    def parts(self) -> list[Run]:
        """The runs that it is made of; none of a generation."""
        if not self.level:
            return []
        parts = range(self.number * MERGED, (self.number + 1) * MERGED)
        return [Run(self.level - 1, part, self.anchors // MERGED) for part in parts]

    @property
    def merged(self) -> Run:
        """The run of the next level that this one becomes part of."""
        return Run(self.level + 1, self.number // MERGED, self.anchors * MERGED)

    def low_bits(self, design: Design) -> NDArray[np.int64]:
        """Bits of each table's prefix that do not name the group, shape (T,)."""
        low = design.prefix_bits - max(0, (self.anchors // GROUP - 1).bit_length())
        return np.clip(low, 0, LOW_BITS)


def run_of(level: int, number: int, generation: int) -> Run:
    """By level and number, where generations are that large. Raises StateError where its keys do not fit."""
    if number >= _MOST_NUMBER:
        raise StateError(f"tables_generation: {number} generations of {generation} anchors, no more fit")
    return Run(level, number, generation * MERGED**level)


def group_keys(groups: U64) -> list[bytes]:
    """Keys of groups, given as `Run.key` | group."""
    keys: list[bytes] = groups.astype(">u8").view("V8").tolist()
    return keys
