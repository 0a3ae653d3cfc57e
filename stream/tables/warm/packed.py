"""Anchors packed in RAM: 4 bytes per anchor and table, and each fingerprint once.

The entries of a table are grouped by the high bits of the prefix, about `GROUP` to a group. An entry is the
rest of the prefix in its upper bits and the anchor's place in its lower bits. A probe compares a whole group,
which is one or two cache lines, whereas chains take a cache line per anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled, inlined, popcount, prefetch
from stream.tables.arrays import I64, U8, U32, U64
from stream.tables.design import Design, PrefixPieces
from stream.tables.search.packed_pairs import (
    PackedPairs,
    count_live,
    no_pairs,
    pack_pair,
    with_room,
)
from stream.tables.search.prefixes_compiled import PROBES_AT_ONCE, Probes, prefix_of, probed_prefixes
from stream.tables.search.probing import Probing
from stream.tables.search.queries import Criteria, Queries

GROUP: Final = 8
"""Largest average number of entries of a group; it is 4 to 8 if prefixes are uniformly distributed. The start
of each group takes 4 bytes."""
ENTRY_BITS: Final = 32
PART_BITS: Final = 7
"""Bits of the prefix by which new anchors are partitioned first, so that the entries written at a time stay
in the cache."""
HITS_AT_ONCE: Final = 1 << 16
"""Matching entries that are collected before they are compared, unless one group has more."""
_ALL_ENTER: Final = np.zeros(0, np.uint64)


class PackedTables(NamedTuple):
    """The tables of a `Packed`."""

    pieces: PrefixPieces
    region: I64
    """(T,): which row of `starts` and `entries` each table has."""
    low: U64
    """(T,): low bits of the prefix that do not select the group."""
    starts: U32
    """(T + 1, g): the first entry of each group."""
    entries: U32
    """(T + 1, n)"""
    place_bits: np.uint64
    """Bits of a place in an entry."""
    fingerprints: U64
    """(m,), by place."""
    words: U64
    """(m, W), by place, if entries have no room for the rest of the prefix; else (0, W)."""
    oldest: int
    """Number of the oldest anchor in the tables, relative to the first one of the index, as the next two."""
    first: int
    """Number of the first anchor that is searched."""
    end: int
    """The number after the last anchor."""
    lap: int
    """What makes the place of an anchor its number. In places before the oldest anchor's, those are a round
    further on."""


class PackedTable(NamedTuple):
    """One table of a `Packed`."""

    starts: U32
    """The first entry of each group."""
    entries: U32
    """Entries, ordered by group."""
    groups: int
    """Number of groups."""
    low: np.uint64
    """Low bits of the prefix that do not select the group."""


class Places(NamedTuple):
    """The places of anchors, which are reused in turn."""

    bits: np.uint64
    """Bits of a place in an entry."""
    size: int
    """Number of places."""
    oldest: int
    """Number of the oldest anchor in the tables."""
    dropped: int
    """Number of anchors, from the oldest on, that are dropped."""
    words: U64
    """`PackedTables.words`."""


class AnchorsToPack(NamedTuple):
    """n anchors that are added to tables."""

    words: U64
    """(n, W)"""
    masks: U64
    """(n,): the tables that each is kept out of; shape (0,) means none."""
    first_place: int
    """Place of the first one; the others follow."""


class Sorted(NamedTuple):
    """The prefixes in one table of the anchors that enter it, partitioned by their high bits, and places."""

    prefixes: U64
    places: U32


Slice = tuple[int, U64, U64 | None]
"""Consecutive anchors: number of the first, rows (n, W + 1), and masks of skipped tables (n,) or None."""


class Packed:
    """Up to `anchors` consecutive anchors. Searches find [first, end); [oldest, first) are dropped but still
    in the tables.

    An anchor's place is its number modulo `places`. There is memory for one more table than the design has: a
    table is repacked there, with new anchors and without dropped ones, while the old copy is still searched.
    The system allocates memory as it is first used, in order.
    """

    def __init__(self, design: Design, anchors: int, places: int) -> None:
        self.design = design
        self.places: Final = places
        self.place_bits = np.uint64((places - 1).bit_length())
        self.least_bits, most_bits, words = _layout(design, anchors, places)
        regions = design.tables + 1
        self.starts: U32 = np.empty((regions, (1 << most_bits) + 2), np.uint32)
        self.entries: U32 = np.empty((regions, anchors), np.uint32)
        self.fingerprints: U64 = np.empty(places, np.uint64)
        self.words: U64 = np.empty((words, design.words), np.uint64)
        self.clear(0)

    @staticmethod
    def bytes(design: Design, anchors: int, places: int) -> int:
        """RAM in bytes for a number of anchors and places."""
        _, bits, words = _layout(design, anchors, places)
        return 4 * (design.tables + 1) * ((1 << bits) + 2 + anchors) + 8 * (places + words * design.words)

    def clear(self, first: int) -> None:
        """Remove all anchors. The next one will be `first`."""
        self.first = self.end = self.oldest = first
        self.region: I64 = np.arange(self.design.tables)
        self.spare = self.design.tables
        self.low = self.design.prefix_bits.astype(np.uint64)

    def drop(self, first: int) -> None:
        """Drop the anchors below `first`. They remain in the tables until the next packing."""
        self.first = first
        self.end = max(self.end, first)

    def search(self, probing: Probing, distance: int, dead: U8) -> None:
        """Add pairs and bucket sizes of the anchors [first, end) to `probing`."""
        if self.first == self.end:
            return
        tables = PackedTables(
            self.design.pieces,
            self.region,
            self.low,
            self.starts,
            self.entries,
            self.place_bits,
            self.fingerprints,
            self.words,
            self.oldest - probing.first,
            max(self.first - probing.first, 0),
            self.end - probing.first,
            self.oldest - self.oldest % self.places - probing.first,
        )
        probing.collector.add_packed(_search(tables, probing.queries, probing.criteria(distance, dead)))


class Packing:
    """Adds the anchors [packed.end, end) to a `Packed` and removes the dropped ones, table by table.

    Call `pack` and `swap` in turns until `swap` returns True. `pack` repacks one table and may run in any
    thread during searches. `swap` makes it current and must be called between searches.
    """

    def __init__(
        self, packed: Packed, end: int, slices: Callable[[], Iterable[Slice]], total: int = 0
    ) -> None:
        """`slices` yields the new anchors in order. `packed` must have room for them. `total` is the number
        of anchors if more are to be added soon: groups for as many need no regrouping then, for which every
        entry's prefix is computed from its key."""
        self._packed = packed
        self._first = packed.first
        self._empty = packed.oldest == packed.end
        self._new = packed.end
        self._end = end
        self._slices = slices
        self._words: U64 = np.empty((0, packed.design.words), np.uint64)
        self._prefixes: U64 = np.empty(0, np.uint64)
        self._places: U32 = np.empty(0, np.uint32)
        self._masks = _ALL_ENTER
        self._table = 0
        bits = max(packed.least_bits, _group_bits(max(total, end - packed.first)))
        self._low = np.maximum(packed.design.prefix_bits - bits, 0).astype(np.uint64)

    def _read(self) -> None:
        packed, count = self._packed, self._end - self._new
        self._words = np.empty((count, packed.design.words), np.uint64)
        self._prefixes = np.empty(count, np.uint64)
        self._places = np.empty(count, np.uint32)
        for first, rows, masks in self._slices():
            at, to = first - self._new, first - self._new + len(rows)
            self._words[at:to] = rows[:, :-1]
            if masks is not None:
                if not self._masks.size:
                    self._masks = np.zeros(count, np.uint64)
                self._masks[at:to] = masks
            places: I64 = np.arange(first, first + len(rows)) % packed.places
            packed.fingerprints[places] = rows[:, -1]
            if packed.words.size:
                packed.words[places] = rows[:, :-1]

    def pack(self) -> None:
        """Pack the next table into the spare region."""
        packed, table = self._packed, self._table
        if table == 0:
            self._read()
        pieces, longest = packed.design.pieces, np.uint64(packed.design.prefix_bits[table])
        entering = AnchorsToPack(self._words, self._masks, self._new % packed.places)
        room = Sorted(self._prefixes, self._places)
        high = longest - min(longest, np.uint64(PART_BITS))
        count = _sort(entering, pieces, table, high, packed.places, room)
        region, old_low, low = packed.region[table], packed.low[table], self._low[table]
        _pack(
            PackedTable(
                packed.starts[region],
                packed.entries[region],
                0 if self._empty else 1 << int(longest - old_low),
                old_low,
            ),
            PackedTable(
                packed.starts[packed.spare], packed.entries[packed.spare], 1 << int(longest - low), low
            ),
            Places(
                packed.place_bits,
                packed.places,
                packed.oldest % packed.places,
                self._first - packed.oldest,
                packed.words,
            ),
            Sorted(self._prefixes[:count], self._places[:count]),
            pieces,
            table,
        )

    def swap(self) -> bool:
        """Make the packed table current. Returns whether it was the last one."""
        packed, table = self._packed, self._table
        packed.spare, packed.region[table] = packed.region[table], packed.spare
        packed.low[table] = self._low[table]
        self._table += 1
        if self._table < len(packed.region):
            return False
        packed.oldest, packed.end = self._first, max(self._end, packed.first)
        return True


def _group_bits(anchors: int) -> int:
    return max(0, anchors // GROUP - 1).bit_length()


def _layout(design: Design, anchors: int, places: int) -> tuple[int, int, int]:
    """Least and most bits of a prefix that select the group; and the number of anchors whose words are stored
    as well, because entries have no room for the remaining bits (0 if they have)."""
    longest, most = int(design.prefix_bits.max()), _group_bits(anchors)
    least = max(0, longest - ENTRY_BITS + max(0, places - 1).bit_length())
    return (least, most, 0) if least <= most else (0, most, places)


@compiled
def _sort(
    entering: AnchorsToPack, pieces: PrefixPieces, table: int, low: np.uint64, places: int, room: Sorted
) -> int:
    """Write prefixes and places of the anchors that enter a table to `room`, partitioned by the prefix above
    its `low` bits. Returns their number."""
    words, skipped, place = entering
    edges = np.zeros((1 << PART_BITS) + 1, np.int64)
    for row in range(words.shape[0]):
        if skipped.size and skipped[row] >> np.uint64(table) & np.uint64(1):
            continue
        prefix = prefix_of(words, row, pieces, table)
        edges[np.int64(prefix >> low) + 1] += 1
    for part in range(1 << PART_BITS):
        edges[part + 1] += edges[part]
    for row in range(words.shape[0]):
        if skipped.size and skipped[row] >> np.uint64(table) & np.uint64(1):
            continue
        prefix = prefix_of(words, row, pieces, table)
        above = np.int64(prefix >> low)
        at = edges[above]
        edges[above] = at + 1
        room.prefixes[at] = prefix
        room.places[at] = np.uint32(place + row if place + row < places else place + row - places)
    return int(edges[-1])


@compiled
def _pack(
    old: PackedTable, new: PackedTable, places: Places, entering: Sorted, pieces: PrefixPieces, table: int
) -> None:
    """Build the table `new` from an old one, without its dropped anchors, and from those that enter.

    A counting sort in two passes. The first counts the entries of group g at `starts[g + 2]`. After summing,
    `starts[g + 1]` is the position of the next entry of group g; after the second pass, which writes the
    entries, it is the start of group g + 1.
    """
    (old_starts, old_entries, old_groups, old_low), (starts, entries, groups, low) = old, new
    place_bits, prefixes = places.bits, entering.prefixes
    in_place = (np.uint64(1) << place_bits) - np.uint64(1)
    in_low = (np.uint64(1) << old_low) - np.uint64(1)
    starts[: groups + 2] = 0
    for placing in range(2):
        for group in range(old_groups):
            prefix, same = np.uint64(group) << old_low, old_low == low
            into = np.int64(prefix >> low) + 2 - placing
            to = starts[into]
            for at in range(old_starts[group], old_starts[group + 1]):
                entry = np.uint64(old_entries[at])
                if places.dropped:
                    since = np.int64(entry & in_place) - places.oldest
                    if (since if since >= 0 else since + places.size) < places.dropped:
                        continue
                if not same:
                    starts[into] = to
                    prefix = np.uint64(group) << old_low | entry >> place_bits & in_low
                    if places.words.size:
                        place = np.int64(entry & in_place)
                        prefix = prefix_of(places.words, place, pieces, table)
                        entry = prefix << place_bits | np.uint64(place)
                    into = np.int64(prefix >> low) + 2 - placing
                    to = starts[into]
                if placing:
                    entries[to] = np.uint32(entry)
                to += np.uint32(1)
            starts[into] = to
        for row in range(prefixes.shape[0]):
            into = np.int64(prefixes[row] >> low) + 2 - placing
            if placing:
                entry = prefixes[row] << place_bits | np.uint64(entering.places[row])
                entries[starts[into]] = np.uint32(entry)
            starts[into] += np.uint32(1)
        if not placing:
            for group in range(groups + 1):
                starts[group + 1] += starts[group]


class GroupRanges(NamedTuple):
    """Room for the entries [begin, end) that each probe reads."""

    begin: U64
    end: U64


class Hits(NamedTuple):
    """Room for entries that match a probe in their bits of the prefix, and the probe's index."""

    entry: U32
    probe: I64


class Search(NamedTuple):
    """Queries, and what is found."""

    queries: Queries
    criteria: Criteria


@compiled
def _search(packed: PackedTables, queries: Queries, criteria: Criteria) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`. Counts the
    live anchors in buckets.

    Memory is prefetched for the probes of several rows before it is read.
    """
    rows, tables = queries.keys.shape
    at_once = max(1, PROBES_AT_ONCE // tables)
    room = at_once * tables
    probes = Probes(np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.uint64))
    groups = GroupRanges(np.empty(room, np.uint64), np.empty(room, np.uint64))
    hits, pairs = Hits(np.empty(0, np.uint32), np.empty(0, np.int64)), no_pairs()
    for row in range(0, rows, at_once):
        if pairs.size >= criteria.enough:
            break
        count = probed_prefixes(queries, row, min(rows, row + at_once), probes)
        _find_groups(packed, probes, count, groups)
        first = 0
        while first < count:
            end, entries = _probes_to_match(groups, first, count)
            if entries > len(hits.entry):
                hits = Hits(np.empty(entries, np.uint32), np.empty(entries, np.int64))
            matched = _match(packed, probes, groups, first, end, hits)
            pairs = with_room(pairs, matched)
            size = _compare(packed, Search(queries, criteria), probes, hits, matched, pairs)
            pairs, first = PackedPairs(pairs.packed, size), end
    return pairs.packed[: pairs.size]


@borrowing
def _find_groups(packed: PackedTables, probes: Probes, count: int, groups: GroupRanges) -> None:
    """Find the group that each of `count` probes reads."""
    starts, entries, low = packed.starts.reshape(-1), packed.entries.reshape(-1), packed.low
    region, (prefix, _, table_of), (begin, end) = packed.region, probes, groups
    starts_a_table, entries_a_table = np.uint64(packed.starts.shape[1]), np.uint64(packed.entries.shape[1])
    for probe in range(count):
        table = table_of[probe]
        begin[probe] = np.uint64(region[table]) * starts_a_table + (prefix[probe] >> low[table])
        prefetch(starts, begin[probe])
    for probe in range(count):
        first, group = np.uint64(region[table_of[probe]]) * entries_a_table, begin[probe]
        begin[probe] = first + np.uint64(starts[group])
        end[probe] = first + np.uint64(starts[group + np.uint64(1)])
        prefetch(entries, begin[probe])
        prefetch(entries, end[probe])


@inlined
def _probes_to_match(groups: GroupRanges, first: int, count: int) -> tuple[int, int]:
    """The end of the next probes to be matched together, at least one, and how many entries they read."""
    end, entries = first, np.uint64(0)
    while end < count and (end == first or entries < np.uint64(HITS_AT_ONCE)):
        entries += groups.end[end] - groups.begin[end]
        end += 1
    return end, int(entries)


@borrowing
def _match(
    packed: PackedTables, probes: Probes, groups: GroupRanges, first: int, end: int, hits: Hits
) -> int:
    """Write the entries that match the probes [first, end) to `hits`. Returns their number."""
    entries, place_bits = packed.entries.reshape(-1), packed.place_bits
    prefix, (begin, last), (entry, probe_of) = probes.prefix, groups, hits
    in_place = np.uint32((np.uint64(1) << place_bits) - np.uint64(1))
    count = np.int64(0)
    for probe in range(first, end):
        wanted = np.uint32(prefix[probe] << place_bits)
        for at in range(begin[probe], last[probe]):  # branch-free: a branch would be mispredicted
            entry[count], probe_of[count] = entries[at], probe
            count += np.int64(entries[at] ^ wanted <= in_place)
    return int(count)


@borrowing
def _compare(
    packed: PackedTables, search: Search, probes: Probes, hits: Hits, count: int, pairs: PackedPairs
) -> int:
    """Add pairs of those of the first `count` hits whose anchors are searched and near; there is room for as
    many. Returns the number of pairs."""
    queries, criteria = search
    tables, places = queries.keys.shape[1], len(packed.fingerprints)
    oldest, searched, end, lap = packed.oldest, packed.first, packed.end, packed.lap
    in_place = np.uint32((np.uint64(1) << packed.place_bits) - np.uint64(1))
    stored, words, pieces = packed.fingerprints, packed.words, packed.pieces
    (entry, probe_of), (prefix, row_of, table_of) = hits, probes
    fingerprints, sizes, (distance, dead, _) = queries.fingerprints, queries.sizes, criteria
    room, size = pairs
    for hit in range(count):
        prefetch(stored, np.uint64(entry[hit] & in_place))
    for hit in range(count):
        probe, place = probe_of[hit], np.uint64(entry[hit] & in_place)
        row, table = row_of[probe], table_of[probe]
        number = lap + np.int64(place)
        if number < oldest:
            number += places
        if number < searched or number >= end:
            continue
        # Entries may have only a part of the prefix.
        if words.size and prefix_of(words, place, pieces, table) != prefix[probe]:
            continue
        count_live(sizes, row * tables + np.int64(table), number, dead)
        apart = popcount(stored[place] ^ fingerprints[row])
        if apart > distance:
            continue
        room[size] = pack_pair(row, number, apart)
        size += 1
    return size
