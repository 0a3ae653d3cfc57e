"""Anchors in RAM, as small as it goes: 4 bytes an anchor and table, and its fingerprint once.

Each table's anchors are sorted by the high bits of their prefix, into groups of `GROUP` or so. An entry is
what is left of the prefix, as far as there is room, above the anchor's number among these. The group that a
probe falls into is compared as a whole: a cache line or two, where chains take a line an anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from stream.compiled import compiled, popcount, prefetch
from stream.tables.candidates import I64, U8
from stream.tables.design import U64, Design
from stream.tables.prefix import PROBES_AT_ONCE, prefix_of, probed_prefixes
from stream.tables.probing import Probing
from stream.tables.slots import U32

GROUP: Final = 8
"""Entries of a group, 4 to 8 where prefixes are as good as random. Starts of groups take 4 bytes each."""
ENTRY_BITS: Final = 32
_UNCOUNTED: Final = np.zeros(0, np.int64)
_ALL_ENTER: Final = np.zeros(0, np.uint64)
_FIRST_PAIRS: Final = 1 << 10

Slice = tuple[int, U64, U64 | None]
"""Number of the first of some anchors, their rows (n, 2), and what they skip (n,)."""


class Packed:
    """Answers for the anchors [first, end), once `fill` is done."""

    def __init__(self, design: Design, first: int, end: int) -> None:
        self._design = design
        self.first: Final = first
        self.end: Final = end
        groups, low, words = _layout(design, end - first)
        self._number_bits = np.uint64((end - first - 1).bit_length())
        self._low = low.astype(np.uint64)
        self._starts: U32 = np.zeros((design.tables, groups + 2), np.uint32)
        self._entries: U32 = np.empty((design.tables, end - first), np.uint32)
        self._fingerprints: U64 = np.empty(end - first, np.uint64)
        self._words: U64 = np.empty(words, np.uint64)

    @staticmethod
    def bytes(design: Design, anchors: int) -> int:
        """RAM that so many anchors take."""
        groups, _, words = _layout(design, anchors)
        return 4 * design.tables * (groups + 2 + anchors) + 8 * (anchors + words)

    def fill(self, slices: Callable[[], Iterable[Slice]]) -> None:
        """Take in all anchors; `slices` gives them, in order, and is called twice."""
        layout = (*self._design.pieces, self._low)
        for _, rows, masks in slices():
            _count(rows[:, 0].copy(), _ALL_ENTER if masks is None else masks, *layout, self._starts)
        np.cumsum(self._starts, axis=1, dtype=np.uint32, out=self._starts)
        for start, rows, masks in slices():
            at = start - self.first
            self._fingerprints[at : at + len(rows)] = rows[:, 1]
            if self._words.size:
                self._words[at : at + len(rows)] = rows[:, 0]
            _enter(
                rows[:, 0].copy(), _ALL_ENTER if masks is None else masks, *layout,
                np.uint64(at), self._number_bits, self._starts, self._entries,
            )  # fmt: skip

    def search(self, probing: Probing, floor: int, distance: int, dead: U8) -> None:
        """Add pairs and bucket sizes of the anchors from `floor` on to `probing`."""
        probing.found.add_packed(
            _search(
                probing.keys,
                probing.bits,
                self._design.key_flip,
                *probing.tree,
                probing.fingerprints,
                *self._design.pieces,
                self._low,
                self._number_bits,
                self._starts,
                self._entries,
                self._fingerprints,
                self._words,
                self.first,
                floor,
                distance,
                dead,
                _UNCOUNTED if probing.sizes is None else probing.sizes,
            )
        )


def _layout(design: Design, anchors: int) -> tuple[int, I64, int]:
    """Groups of a table; bits of each table's prefix below them (T,); anchors whose words are kept too, for
    entries have no room for these bits."""
    group_bits = max(0, (anchors // GROUP - 1).bit_length())
    low = np.maximum(design.prefix_bits - group_bits, 0)
    room = ENTRY_BITS - (anchors - 1).bit_length()
    return 1 << group_bits, low, anchors if low.max() > room else 0


@compiled
def _count(words: U64, skipped: U64, shifts: U64, masks: U64, places: U64, low: U64, starts: U32) -> None:
    """Count every group's entries two places after its own."""
    for table in range(shifts.shape[0]):
        for row in range(words.shape[0]):
            if skipped.size and skipped[row] >> np.uint64(table) & np.uint64(1):
                continue
            prefix = prefix_of(words[row], shifts, masks, places, table)
            starts[table, (prefix >> low[table]) + np.uint64(2)] += np.uint32(1)


@compiled
def _enter(
    words: U64,
    skipped: U64,
    shifts: U64,
    masks: U64,
    places: U64,
    low: U64,
    number: np.uint64,
    number_bits: np.uint64,
    starts: U32,
    entries: U32,
) -> None:
    """Put anchors, numbered here from `number` on, where the place after their group's says, and have
    it say the next: at the end it is where the next group starts."""
    for table in range(shifts.shape[0]):
        for row in range(words.shape[0]):
            if skipped.size and skipped[row] >> np.uint64(table) & np.uint64(1):
                continue
            prefix = prefix_of(words[row], shifts, masks, places, table)
            place = (prefix >> low[table]) + np.uint64(1)
            at = starts[table, place]
            starts[table, place] = at + np.uint32(1)
            entries[table, at] = np.uint32(prefix << number_bits | number + np.uint64(row))


@compiled
def _search(
    keys: U64,
    flip_bits: U8,
    key_flip: U64,
    parents: I64,
    added: I64,
    fingerprints: U64,
    shifts: U64,
    masks: U64,
    places: U64,
    low: U64,
    number_bits: np.uint64,
    starts: U32,
    entries: U32,
    stored: U64,
    words: U64,
    first: int,
    floor: int,
    distance: int,
    dead: U8,
    sizes: I64,
) -> U64:
    """Pairs of a row and an anchor of a bucket that it probes, packed as `Found` has them.

    What the probes of several rows read is asked for before it is looked at.
    """
    rows, tables = keys.shape
    groups, anchors = np.uint64(starts.shape[1]), np.uint64(entries.shape[1])
    starts_flat, entries_flat = starts.ravel(), entries.ravel()
    in_number = np.uint32((np.uint64(1) << number_bits) - np.uint64(1))
    at_once = max(1, PROBES_AT_ONCE // (tables * len(parents)))
    room = at_once * tables * len(parents)
    prefixes, exact = np.empty(room, np.uint64), np.empty(room, np.bool_)
    row_of, table_of = np.empty(room, np.int64), np.empty(room, np.uint64)
    begins, ends = np.empty(room, np.uint64), np.empty(room, np.uint64)
    pairs, found = np.empty(_FIRST_PAIRS, np.uint64), 0
    for row in range(0, rows, at_once):
        probes = probed_prefixes(
            keys,
            flip_bits,
            key_flip,
            parents,
            added,
            row,
            min(rows, row + at_once),
            prefixes,
            row_of,
            table_of,
            exact,
        )
        for probe in range(probes):
            table = table_of[probe]
            begins[probe] = table * groups + (prefixes[probe] >> low[table])
            prefetch(starts_flat, begins[probe])
        for probe in range(probes):
            before, group = table_of[probe] * anchors, begins[probe]
            begins[probe] = before + np.uint64(starts_flat[group])
            ends[probe] = before + np.uint64(starts_flat[group + np.uint64(1)])
            prefetch(entries_flat, begins[probe])
            prefetch(entries_flat, ends[probe])
        for probe in range(probes):
            wanted = np.uint32(prefixes[probe] << number_bits)
            hits = np.uint32(0)
            for at in range(begins[probe], ends[probe]):  # without a branch, so several are compared at once
                hits += np.uint32(entries_flat[at] ^ wanted <= in_number)
            if hits == np.uint32(0):
                continue
            of, table = row_of[probe], table_of[probe]
            for at in range(begins[probe], ends[probe]):
                if entries_flat[at] ^ wanted > in_number:
                    continue
                place = np.uint64(entries_flat[at] & in_number)
                number = np.int64(place) + first
                if number < floor:
                    continue
                if words.size:
                    prefix = prefix_of(words[place], shifts, masks, places, table)
                    if prefix != prefixes[probe]:
                        continue
                if exact[probe] and sizes.size:
                    byte = number >> 3
                    if byte >= len(dead) or not dead[byte] >> np.uint8(number & 7) & np.uint8(1):
                        sizes[of * tables + np.int64(table)] += 1
                apart = popcount(stored[place] ^ fingerprints[of])
                if apart <= distance:
                    if found == len(pairs):
                        grown = np.empty(2 * found, np.uint64)
                        grown[:found] = pairs
                        pairs = grown
                    pairs[found] = np.uint64(of) << np.uint64(40) | np.uint64(number) << np.uint64(8)
                    pairs[found] |= np.uint64(apart)
                    found += 1
    return pairs[:found]
