"""Runs: consecutive anchors in RocksDB, sorted by table and prefix.

A run of level 0 is one generation. As soon as there are `MERGED` consecutive runs of a level, from a multiple
of `MERGED` on, they are merged into a run of the next level. So the set of runs depends only on the number of
anchors, once all due merges are done.

Family `runs`: the key is level u8, number of the run among those of its level u32, table u8 and group u32,
BE. The value is the entries of the group, 16 bytes each, sorted by prefix, then number: fingerprint u64 LE,
number u32 LE, low bits of the prefix u32 LE. Numbers are relative to the run's first anchor. Anchors that
were dead or gone when the run was built are left out. A group has all entries that share the high bits of the
prefix, about `GROUP` of them. So a probe reads one small value, and a run of a million anchors takes thirty
thousand puts a table instead of a million. Reserves are the table behind those of the design. The table
`FILTER` is the run's filter, in pieces (`stream.tables.runs.filters`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.tables.arrays import I64, U64

MERGED: Final = 8
"""Runs of a level that are merged into one of the next. A search has a cost per run; each level costs another
copy."""
GROUP: Final = 32
"""Average entries per group if prefixes are uniformly distributed."""
LOW_BITS: Final = 32
"""Most bits of a prefix in an entry."""
ENTRY_BYTES: Final = 16
_KEY_BYTES: Final = 10
FILTER: Final = 0xFF
"""Stands for a table."""
TABLE_PLACE: Final = 32
"""Place of the table in a number that stands for a table and a group."""


class Run(NamedTuple):
    """Anchors that follow each other."""

    level: int
    number: int
    """Its number among the runs of its level."""
    anchors: int
    """How many there are, with those that are gone."""

    @property
    def first(self) -> int:
        """Number of its first anchor."""
        return self.number * self.anchors

    @property
    def end(self) -> int:
        """Number after its last anchor."""
        return self.first + self.anchors

    @property
    def name(self) -> bytes:
        """Its level u8 and number u32 BE, with which its keys begin."""
        return _name(self.level, self.number)

    def key(self, table: int, group: int = 0) -> bytes:
        """The key of a group."""
        return self.name + table.to_bytes(1, "big") + group.to_bytes(4, "big")

    def keys(self, groups: U64) -> list[bytes]:
        """The keys of groups (n,), given as table << TABLE_PLACE | group."""
        made = np.empty((len(groups), _KEY_BYTES), np.uint8)
        made[:, : _KEY_BYTES - 5] = np.frombuffer(self.name, np.uint8)
        made[:, _KEY_BYTES - 5 :] = groups.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 3:]
        keys: list[bytes] = made.view(f"V{_KEY_BYTES}").ravel().tolist()
        return keys

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of the run and of all earlier ones of its level."""
        return _name(self.level, 0), _name(self.level, self.number + 1)

    @property
    def parts(self) -> list[Run]:
        """The runs of which it is merged."""
        numbers = range(self.number * MERGED, (self.number + 1) * MERGED)
        return (
            [Run(self.level - 1, number, self.anchors // MERGED) for number in numbers] if self.level else []
        )

    @property
    def bounds_of_parts(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of its parts."""
        return _name(self.level - 1, self.number * MERGED), _name(self.level - 1, (self.number + 1) * MERGED)

    @property
    def bounds_to_parts(self) -> tuple[bytes, bytes]:
        """The range of keys [start, end) of its parts and of all earlier runs of their level."""
        return _name(self.level - 1, 0), _name(self.level - 1, (self.number + 1) * MERGED)

    @property
    def merged(self) -> Run:
        """The run of the next level that has it."""
        return Run(self.level + 1, self.number // MERGED, self.anchors * MERGED)

    def low_bits(self, prefix_bits: I64) -> I64:
        """Bits of each table's prefix, of `prefix_bits` (T,), that are in the entries rather than in the
        group's key."""
        low: I64 = np.clip(prefix_bits - max(0, (self.anchors // GROUP - 1).bit_length()), 0, LOW_BITS)
        return low


def _name(level: int, number: int) -> bytes:
    return level.to_bytes(1, "big") + number.to_bytes(4, "big")


def run_named(name: bytes, generation: int) -> Run:
    """The run of a name, where generations have so many anchors. Raises ValueError."""
    if len(name) != _KEY_BYTES - 5:
        raise ValueError(f"{name.hex()} names no run")
    return Run(name[0], int.from_bytes(name[1:], "big"), generation * int(MERGED ** name[0]))
