"""The buckets of a generation in RAM, for compiled loops: a hash table of known size.

A slot has 15 bits of a key's hash, its tag, and a value: the anchor of a bucket that has one, or the number
of a bucket that has several, whose anchors are contiguous. Ten slots are a line, which fills a cache line: to
look for a bucket, or to enter one, takes one of these. Whatever matches by its tag is compared by the whole
key.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream.compiled import borrowing, compiled, inlined, popcount, prefetch
from stream.tables.arrays import I64, U16, U32, U64
from stream.tables.design import TABLE_BITS, PrefixPieces
from stream.tables.hashing import mixed
from stream.tables.search.near import lowest_place
from stream.tables.search.packed_pairs import Integer, PackedPairs, grown, no_pairs, pack_pair, with_room
from stream.tables.search.prefixes_compiled import prefix_of
from stream.tables.search.queries import Criteria, Queries

SLOTS: Final = 10
"""Slots of a line. Those that are taken come first; where all are, the next line follows."""
_TAGS: Final = 32
"""Places of a line among tags, of which its slots have the first."""
_VALUES: Final = 16
"""Places of a line among values, of which its slots have the last."""
_FIRST: Final = _VALUES - SLOTS
ENTERED_AT_ONCE: Final = 16
"""Anchors whose memory is prefetched together."""
MOVED_AHEAD: Final = 4
"""Lines that are moved while the memory of a later one is prefetched."""
PROBES_AT_ONCE: Final = 1024
"""Probes whose memory is prefetched together, unless a single row has more."""
_SHARED: Final = np.uint32(1 << 31)
_GONE: Final = np.uint32(0xFFFF_FFFF)
"""The value of a slot whose only anchor is dead."""
_TABLE: Final = np.uint64((1 << TABLE_BITS) - 1)
_FIRST_ROOM: Final = 2


class Buckets(NamedTuple):
    """The buckets of up to m anchors, which are rows of `rows`."""

    tags: U16
    """(32 * lines,): the first ten of a line are those of its slots, 0 for a free one."""
    values: U32
    """(16 * lines,), in the same memory: the last ten of a line are those of its slots, row << 6 | table, or
    the number of a shared bucket with the highest bit."""
    rows: U64
    """(m, W + 1): words and fingerprint of each anchor."""
    pieces: PrefixPieces
    """`Design.pieces`."""
    keys: U64
    """(b,): the key of each shared bucket."""
    shared: I64
    """(b, 3): the first of its members, how many there are, and for how many there is room."""
    prints: U64
    """(k,): fingerprints of members; those of a bucket follow each other, oldest first."""
    members: U32
    """(k,): their rows."""
    seed: U64
    """(1,): mixed with keys, so that nobody can make many that stand in one place."""
    many: int
    """Number of shared buckets."""
    end: int
    """Number of members that are taken."""


@inlined
def _line_of(hashed: np.uint64, buckets: Buckets) -> np.uint64:
    return (hashed >> np.uint64(32)) * np.uint64(len(buckets.tags) // _TAGS) >> np.uint64(32)


@inlined
def _tag_of(hashed: np.uint64) -> np.uint16:
    return np.uint16(hashed & np.uint64(0xFFFF)) | np.uint16(1)


@inlined
def _take(buckets: Buckets, place: Integer, tag: np.uint16, value: np.uint32) -> None:
    """Fill a slot, given by the place of its value."""
    buckets.tags[place // _VALUES * _TAGS + place % _VALUES - _FIRST] = tag
    buckets.values[place] = value


@inlined
def _holds(buckets: Buckets, value: np.uint32, key: np.uint64) -> bool:
    """Whether a slot with this value is that of the key."""
    if value == _GONE:
        return False
    if value & _SHARED:
        return bool(buckets.keys[value ^ _SHARED] == key)
    table = np.int64(key & _TABLE)
    if np.int64(value) & np.int64(_TABLE) != table:
        return False
    return bool(
        prefix_of(buckets.rows, np.int64(value) >> TABLE_BITS, buckets.pieces, table)
        == key >> np.uint64(TABLE_BITS)
    )


@borrowing
def _place_of(buckets: Buckets, key: np.uint64) -> np.int64:
    """The place of a bucket's value; if there is none, -1 less the one that it may take: that of a free slot,
    or of a dead anchor with the same tag."""
    hashed = mixed(key ^ buckets.seed[0])
    tag, tags, left = _tag_of(hashed), buckets.tags, np.int64(-1)
    line = np.int64(_line_of(hashed, buckets))
    while True:
        for slot in range(SLOTS):
            place, there = line * _VALUES + _FIRST + slot, tags[line * _TAGS + slot]
            if there == 0:
                return -1 - (place if left < 0 else left)
            if there == tag:
                if _holds(buckets, buckets.values[place], key):
                    return place
                if left < 0 and buckets.values[place] == _GONE:
                    left = place
        line += 1
        if line == len(tags) // _TAGS:
            line = np.int64(0)


@compiled
def _with_ends(buckets: Buckets, many: int, end: int) -> Buckets:
    tags, values, rows, pieces, keys, shared, prints, members, seed, _, _ = buckets
    return Buckets(tags, values, rows, pieces, keys, shared, prints, members, seed, many, end)


@compiled
def _with_room(buckets: Buckets, more: int) -> Buckets:
    """The same, with room for further members, and for a further shared bucket."""
    tags, values, rows, pieces, keys, shared, prints, members, seed, many, end = buckets
    if many == len(keys):
        of_shared = np.empty((2 * many + 1, 3), np.int64)
        of_shared[:many], shared = shared, of_shared
        keys = grown(keys, 2 * many + 1)
    if end + more > len(prints):
        prints = grown(prints, 2 * (end + more))
        of_members = np.empty(len(prints), np.uint32)
        of_members[:end] = members[:end]
        members = of_members
    return Buckets(tags, values, rows, pieces, keys, shared, prints, members, seed, many, end)


@compiled
def _joined(buckets: Buckets, place: Integer, key: np.uint64, row: Integer) -> Buckets:
    """The same, with a further member of the bucket in a slot."""
    value = buckets.values[place]
    if value == _GONE or not value & _SHARED:
        buckets = _with_room(buckets, _FIRST_ROOM)
        number, start = buckets.many, buckets.end
        buckets.keys[number] = key
        buckets.shared[number, 0], buckets.shared[number, 1] = start, 0
        buckets.shared[number, 2] = _FIRST_ROOM
        buckets.values[place] = np.uint32(number) | _SHARED
        buckets = _with_ends(buckets, number + 1, start + _FIRST_ROOM)
        if value != _GONE:
            _add_member(buckets, number, np.int64(value) >> TABLE_BITS)
        value = buckets.values[place]
    shared = np.int64(value ^ _SHARED)
    count, room = buckets.shared[shared, 1], buckets.shared[shared, 2]
    if count == room:
        buckets = _with_room(buckets, 2 * room)
        start, end = buckets.shared[shared, 0], buckets.end
        buckets.members[end : end + count] = buckets.members[start : start + count]
        buckets.prints[end : end + count] = buckets.prints[start : start + count]
        buckets.shared[shared, 0], buckets.shared[shared, 2] = end, 2 * room
        buckets = _with_ends(buckets, buckets.many, end + 2 * room)
    _add_member(buckets, shared, row)
    return buckets


@borrowing
def _add_member(buckets: Buckets, number: Integer, row: Integer) -> None:
    at = buckets.shared[number, 0] + buckets.shared[number, 1]
    buckets.members[at] = row
    buckets.prints[at] = buckets.rows[row, -1]
    buckets.shared[number, 1] += 1


@compiled
def enter(buckets: Buckets, first: int, masks: U64) -> Buckets:
    """The same, with the anchors in the rows from `first` on in all tables but those of their masks (n,)."""
    keys, rows = np.empty((2, masks.size * buckets.pieces.shifts.shape[0]), np.uint64)
    for entry in range(_enter_alone(buckets, first, masks, keys, rows)):
        buckets = _joined(buckets, _place_of(buckets, keys[entry]), keys[entry], np.int64(rows[entry]))
    return buckets


@borrowing
def _enter_alone(buckets: Buckets, first: int, masks: U64, left_keys: U64, left_rows: U64) -> int:
    """Let anchors enter the buckets in which nobody is. Returns how many keys and rows of others it wrote to
    `left_keys` and `left_rows`."""
    tables, tags, left = buckets.pieces.shifts.shape[0], buckets.tags, np.int64(0)
    for start in range(0, len(masks), ENTERED_AT_ONCE):
        some = min(ENTERED_AT_ONCE, len(masks) - start)
        for i in range(some):
            for table in range(tables):
                prefix = prefix_of(buckets.rows, first + start + i, buckets.pieces, table)
                hashed = mixed((prefix << np.uint64(TABLE_BITS) | np.uint64(table)) ^ buckets.seed[0])
                prefetch(tags, _line_of(hashed, buckets) * np.uint64(_TAGS))
        for i in range(some):
            row = first + start + i
            for table in range(tables):
                if masks[start + i] >> np.uint64(table) & np.uint64(1):
                    continue
                prefix = prefix_of(buckets.rows, row, buckets.pieces, table)
                key = prefix << np.uint64(TABLE_BITS) | np.uint64(table)
                hashed = mixed(key ^ buckets.seed[0])
                tag, line = _tag_of(hashed), np.int64(_line_of(hashed, buckets))
                taken, equal = np.int64(0), np.int64(0)
                for slot in range(SLOTS):  # no branches: the compiler makes vector instructions of it
                    taken += tags[line * _TAGS + slot] != 0
                    equal += tags[line * _TAGS + slot] == tag
                place = -1 - (line * _VALUES + _FIRST + taken)
                if equal or taken == SLOTS:
                    place = _place_of(buckets, key)
                if place < 0:
                    _take(buckets, -1 - place, tag, np.uint32(row << TABLE_BITS | table))
                else:
                    left_keys[left], left_rows[left] = key, row
                    left += 1
    return int(left)


@borrowing
def move(old: Buckets, new: Buckets) -> None:
    """Fill the empty slots of `new`, which are more, with what those of `old` have; the rest is in common."""
    lines, width = len(old.tags) // _TAGS, np.uint64(old.rows.shape[1])
    for line in range(lines):
        for slot in range(SLOTS):
            ahead = (line + MOVED_AHEAD) * _VALUES + _FIRST + slot
            if ahead < len(old.values) and not old.values[ahead] & _SHARED:
                prefetch(old.rows, np.uint64(old.values[ahead] >> np.uint32(TABLE_BITS)) * width)
            tag, value = old.tags[line * _TAGS + slot], old.values[line * _VALUES + _FIRST + slot]
            if tag == 0 or value == _GONE:
                continue
            if value & _SHARED:
                key = old.keys[value ^ _SHARED]
            else:
                row, table = np.int64(value) >> TABLE_BITS, np.int64(value) & np.int64(_TABLE)
                key = prefix_of(old.rows, row, old.pieces, table) << np.uint64(TABLE_BITS) | np.uint64(table)
            _take(new, -1 - _place_of(new, key), tag, value)


@compiled
def enter_reserves(buckets: Buckets, rows: U64, keys: U64) -> Buckets:
    """The same, with the anchors in some rows (k,) in reserves, by the keys of these (k,)."""
    for entry in range(len(keys)):
        place = _place_of(buckets, keys[entry])
        if place < 0:
            place = -1 - place
            _take(buckets, place, _tag_of(mixed(keys[entry] ^ buckets.seed[0])), _GONE)
        buckets = _joined(buckets, place, keys[entry], np.int64(rows[entry]))
    return buckets


@borrowing
def leave(buckets: Buckets, rows: I64) -> None:
    """Remove the anchors in some rows from all tables. Without this, a URL whose page changes at every fetch
    would make one bucket longer and longer."""
    for row in rows:
        for table in range(buckets.pieces.shifts.shape[0]):
            prefix = prefix_of(buckets.rows, row, buckets.pieces, table)
            _remove(buckets, prefix << np.uint64(TABLE_BITS) | np.uint64(table), row)


@borrowing
def leave_reserves(buckets: Buckets, rows: U64, keys: U64) -> None:
    """Remove the anchors in some rows (k,) from reserves, by the keys of these (k,)."""
    for entry in range(len(keys)):
        _remove(buckets, keys[entry], np.int64(rows[entry]))


@borrowing
def _remove(buckets: Buckets, key: np.uint64, row: Integer) -> None:
    place = _place_of(buckets, key)
    if place < 0:
        return
    value = buckets.values[place]
    if not value & _SHARED:
        if np.int64(value) >> TABLE_BITS == row:
            buckets.values[place] = _GONE
        return
    number, members, prints = np.int64(value ^ _SHARED), buckets.members, buckets.prints
    start, kept = buckets.shared[number, 0], np.int64(0)
    for at in range(start, start + buckets.shared[number, 1]):
        members[start + kept], prints[start + kept] = members[at], prints[at]
        kept += members[at] != row
    buckets.shared[number, 1] = kept


class Probes(NamedTuple):
    """Room for p probes."""

    line: U64
    """The line in which each begins; of those that are perhaps here, the place of their value."""
    tag: U16
    perhaps: I64
    """Those of which the bucket may be here."""


class Here(NamedTuple):
    """Which anchors are here."""

    shift: int
    """What makes a row the number of its anchor, as in pairs."""
    first: int
    """Rows before it are gone."""


@compiled
def find(buckets: Buckets, queries: Queries, criteria: Criteria, here: Here) -> U64:
    """Pairs of a row and an anchor in a bucket that it probes, packed as in `PairCollector`, with
    repetitions. Counts anchors in buckets."""
    rows, tables = queries.keys.shape
    at_once, pairs = max(1, PROBES_AT_ONCE // tables), no_pairs()
    room = at_once * tables
    probes = Probes(np.empty(room, np.uint64), np.empty(room, np.uint16), np.empty(room, np.int64))
    for first in range(0, rows, at_once):
        if pairs.size >= criteria.enough:
            break
        perhaps, at = _begin(buckets, queries.keys[first : first + at_once], probes), 0
        while at < perhaps:
            at, size, more = _add_some(buckets, queries, first, (probes, at, perhaps), criteria, here, pairs)
            pairs = with_room(PackedPairs(pairs.packed, size), more)
    return pairs.packed[: pairs.size]


@borrowing
def _begin(buckets: Buckets, keys: U64, probes: Probes) -> int:
    """Read the line of each probe. Returns the number of those whose bucket may be here."""
    tags, values, tables = buckets.tags, buckets.values, keys.shape[1]
    line, tag, perhaps = probes
    count, first = keys.size, np.int64(0)
    for probe in range(count):
        hashed = mixed(keys[probe // tables, probe % tables] ^ buckets.seed[0])
        line[probe], tag[probe] = _line_of(hashed, buckets), _tag_of(hashed)
        prefetch(tags, line[probe] * np.uint64(_TAGS))
    for probe in range(count):
        start = line[probe] * np.uint64(_TAGS)
        mask = np.uint64(tags[start + np.uint64(SLOTS - 1)] != 0) << np.uint64(SLOTS)
        for slot in range(SLOTS):  # no branches: the compiler makes vector instructions of it
            mask |= np.uint64(tags[start + np.uint64(slot)] == tag[probe]) << np.uint64(slot)
        perhaps[first] = probe
        line[first] = line[probe] * np.uint64(_VALUES) + np.uint64(_FIRST + lowest_place(mask) % SLOTS)
        first += mask != 0
    for at in range(first):
        value = values[line[at]]
        if value & _SHARED and value != _GONE:
            prefetch(buckets.shared, np.uint64(3) * np.uint64(value ^ _SHARED))
            prefetch(buckets.keys, np.uint64(value ^ _SHARED))
        elif value != _GONE:
            prefetch(
                buckets.rows, np.uint64(value >> np.uint32(TABLE_BITS)) * np.uint64(buckets.rows.shape[1])
            )
    return int(first)


@borrowing
def _add_some(
    buckets: Buckets,
    queries: Queries,
    first: int,
    probing: tuple[Probes, int, int],
    criteria: Criteria,
    here: Here,
    pairs: PackedPairs,
) -> tuple[int, int, int]:
    """Add the pairs of probes, of the queries from `first` on, whose buckets may be here: of those from one
    of them to another, as far as there is room. Returns the next one, the number of pairs, and how many more
    it may have."""
    (probes, begin, end), packed, size = probing, pairs.packed, np.int64(pairs.size)
    tables, within = queries.keys.shape[1], criteria.distance
    for at in range(begin, end):
        query, table = first + probes.perhaps[at] // tables, probes.perhaps[at] % tables
        key, place = queries.keys[query, table], np.int64(probes.line[at])
        if not _holds(buckets, buckets.values[place], key):
            place = _place_of(buckets, key)
            if place < 0:
                continue
        value, row, own = buckets.values[place], queries.rows[query], queries.fingerprints[query]
        if not value & _SHARED:
            if size == len(packed):
                return at, int(size), 1
            member = np.int64(value) >> TABLE_BITS
            if member >= here.first:
                apart = popcount(buckets.rows[member, -1] ^ own)
                packed[size] = pack_pair(row, member + here.shift, apart)
                size += apart <= within
                if queries.sizes.size:
                    queries.sizes[query * tables + table] += 1
            continue
        start, count, _ = buckets.shared[value ^ _SHARED]
        if size + count > len(packed):
            return at, int(size), int(count)
        last, prints, members = start + count, buckets.prints, buckets.members
        while start < last and np.int64(members[start]) < here.first:
            start += 1
        if queries.sizes.size:
            queries.sizes[query * tables + table] += last - start
        for member_at in range(start, last):  # no branches
            apart = popcount(prints[member_at] ^ own)
            packed[size] = pack_pair(row, np.int64(members[member_at]) + here.shift, apart)
            size += apart <= within
    return end, int(size), 0
