"""Runs: the anchors of whole generations in RocksDB, sorted by prefix, with a column family per table.

A run of level 0 is one generation. As soon as there are `MERGED` consecutive runs of a level, beginning at a
multiple of `MERGED`, they are merged into a run of the next level, up to `LEVELS`. Once all due merges are
done, the set of runs depends only on the number of anchors.

Family `table-tt`: the key is run and group, 8 bytes. The value is the entries of the group, 16 bytes each,
sorted by prefix, then number: fingerprint u64 LE, number u32 LE, low bits of the prefix u32 LE. A group has
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
with its size, and even 2**32 anchors have few runs of this level."""
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
        """The key of its first group as a 64-bit integer. Those of the others differ in the lower 32 bits."""
        return self.level << _LEVEL_PLACE | self.number << _NUMBER_PLACE

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The range of its keys [start, end)."""
        return self.key.to_bytes(8, "big"), (self.key + (1 << _NUMBER_PLACE)).to_bytes(8, "big")

    @property
    def parts(self) -> list[Run]:
        """The runs from which it is merged; empty for a generation."""
        if not self.level:
            return []
        parts = range(self.number * MERGED, (self.number + 1) * MERGED)
        return [Run(self.level - 1, part, self.anchors // MERGED) for part in parts]

    @property
    def merged(self) -> Run:
        """The run of the next level into which this one is merged."""
        return Run(self.level + 1, self.number // MERGED, self.anchors * MERGED)

    def low_bits(self, design: Design) -> NDArray[np.int64]:
        """Bits of each table's prefix that are in the entries rather than in the group's key, shape (T,)."""
        low = design.prefix_bits - max(0, (self.anchors // GROUP - 1).bit_length())
        return np.clip(low, 0, LOW_BITS)


def run_of(level: int, number: int, generation: int) -> Run:
    """The run of that level and number, with generations of `generation` anchors. Raises StateError if the
    number does not fit in keys."""
    if number >= _MOST_NUMBER:
        raise StateError(f"tables_generation: {number} generations of {generation} anchors are too many")
    return Run(level, number, generation * MERGED**level)


def group_keys(groups: U64) -> list[bytes]:
    """RocksDB keys of groups, given as `Run.key` | group."""
    keys: list[bytes] = groups.astype(">u8").view("V8").tolist()
    return keys
