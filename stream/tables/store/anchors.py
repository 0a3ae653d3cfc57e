"""The log of all anchors, and the sets of anchors that are dead or were kept out of full buckets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import I64, U64, distinct
from stream.tables.store.contents import digest, hash_words, union
from stream.tables.store.failures import damage_error
from stream.tables.store.rocks import DEFAULT, LOG, Store, Writes

CHUNK: Final = 256
"""Anchors per key of the log. The last chunk is rewritten as it fills, so the log's content depends only on
the anchors, not on the batches. A batch of 700 anchors takes 4 puts of 4 KiB instead of 700 puts."""

CHUNKS_AT_ONCE: Final = 1 << 10
"""Chunks read at a time; they take 8 MiB or less."""
READ_AT_ONCE: Final = 1 << 20
"""Rows per slice; they take 16 MiB or more."""

FIRST: Final = b"tables/first"
COUNT: Final = b"tables/count"
DEAD: Final = b"tables/dead/"
SKIPPED: Final = b"tables/skipped/"
FIRST_ENTRY: Final = b"triples/first"


def with_prefix(store: Store, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Records of the default family whose keys start with `prefix`, as (rest of the key, value)."""
    for key, value in store.scan(DEFAULT, prefix):
        if not key.startswith(prefix):
            return
        yield key[len(prefix) :], value


def _number(store: Store, record: bytes) -> int:
    """A number in the default family, 0 if there is none."""
    return int.from_bytes(store.get(DEFAULT, [record])[0] or b"", "little")


def first_anchor(store: Store) -> int:
    """Number of a store's first anchor. Those before it are gone; numbers are not used again. Raises
    DamagedStateError unless it is a multiple of `CHUNK`."""
    first = _number(store, FIRST)
    if first % CHUNK:
        raise damage_error(store.path, f"anchors begin at {first}, which is not a multiple of {CHUNK}")
    return first


class AnchorLog:
    """The rows of all anchors by number, in the family `log`.

    The key of a chunk is the number of its first anchor, u64 BE. Its value is the rows: for each anchor the W
    words by which tables index it and the first word of its fingerprint, all u64 LE. In memory, rows have the
    shape (n, W + 1).
    """

    def __init__(self, store: Store, words: int) -> None:
        self._store, self._columns = store, words + 1
        self._row_bytes = 8 * self._columns
        self.first: Final = first_anchor(store)
        """Number of the first anchor."""
        stored = store.get(DEFAULT, [COUNT])[0]
        self.count = int.from_bytes(stored, "little") if stored else self.first
        """Number of anchors ever inserted, which is the number of the next one."""
        if self.count < self.first:
            raise damage_error(store.path, f"anchors begin at {self.first}, but {self.count} are counted")
        self._tail = self.read(self.count - self.count % CHUNK, self.count)

    def append(self, batch: Writes, anchors: U64) -> None:
        """Add anchors (n, W + 1) to the log, through `batch`."""
        first = self.count - len(self._tail)
        rows = np.concatenate([self._tail, anchors])
        content = rows.astype("<u8").tobytes()
        for start in range(0, len(rows), CHUNK):
            key = (first + start).to_bytes(8, "big")
            batch.put(LOG, key, content[start * self._row_bytes : (start + CHUNK) * self._row_bytes])
        self.count += len(anchors)
        self._tail = rows[len(rows) - self.count % CHUNK :].copy()
        batch.put(DEFAULT, COUNT, self.count.to_bytes(8, "little"))

    def read(self, start: int, end: int) -> U64:
        """Rows of the anchors [start, end), read from the store. Raises DamagedStateError."""
        first = start - start % CHUNK
        parts: list[bytes] = []
        have = first
        if first < end:
            for key, value in self._store.scan(LOG, first.to_bytes(8, "big")):
                if int.from_bytes(key, "big") != have:
                    break
                parts.append(value)
                have += len(value) // self._row_bytes
                if have >= end:
                    break
        if have < end:
            raise damage_error(self._store.path, f"anchor log ends at {have}, {end} anchors counted")
        rows = np.frombuffer(b"".join(parts), "<u8").astype(np.uint64, copy=False)
        rows = rows.reshape(-1, self._columns)
        return rows[start - first : end - first]

    def take(self, anchors: I64) -> U64:
        """Rows (n, W + 1) of some anchors (n,), read from the store. Raises DamagedStateError."""
        numbers = distinct(anchors)
        chunks = numbers // CHUNK
        starts = np.flatnonzero(np.diff(chunks, prepend=-1))
        ends = np.append(starts[1:], len(numbers))
        rows = np.empty((len(numbers), self._columns), np.uint64)
        for first in range(0, len(starts), CHUNKS_AT_ONCE):
            some = slice(first, first + CHUNKS_AT_ONCE)
            keys = [(CHUNK * chunk).to_bytes(8, "big") for chunk in chunks[starts[some]].tolist()]
            for start, end, value in zip(starts[some], ends[some], self._store.get(LOG, keys), strict=True):
                place = numbers[start:end] % CHUNK
                if len(value or b"") <= place[-1] * self._row_bytes:
                    raise damage_error(self._store.path, f"anchor log lacks anchor {numbers[end - 1]}")
                rows[start:end] = np.frombuffer(value or b"", "<u8").reshape(-1, self._columns)[place]
        return rows[np.searchsorted(numbers, anchors)]

    def slices(self, start: int, end: int) -> Iterator[tuple[int, U64]]:
        """The anchors [start, end) in slices, as (number of the first, rows)."""
        for first in range(start, end, READ_AT_ONCE):
            yield first, self.read(first, min(first + READ_AT_ONCE, end))


_EVERY: Final = np.uint64(2**64 - 1)


class NumberSet:
    """A set of numbers, as a bitmap from `first` on. All numbers before that are in it, and not counted."""

    def __init__(self, first: int) -> None:
        self.first: Final = first
        self.bits = np.zeros(1 << 10, np.uint8)
        """Bit n % 8 of byte n // 8 tells whether the set has `first` + n. Numbers beyond the end are not in
        it."""
        self.count = 0
        self.digest = 0
        """Digest of the set."""

    def add(self, numbers: I64) -> None:
        """Add numbers, of which some may be there already."""
        numbers = distinct(numbers)
        numbers = numbers[~self.test(numbers)]
        if not len(numbers):
            return
        places = numbers - self.first
        need = int(places[-1] >> 3) + 1
        if need > len(self.bits):
            grown = np.zeros(max(need, 2 * len(self.bits)), np.uint8)
            grown[: len(self.bits)] = self.bits
            self.bits = grown
        np.bitwise_or.at(self.bits, places >> 3, (1 << (places & 7)).astype(np.uint8))
        self.count += len(numbers)
        self.digest = union(self.digest, digest(hash_words(numbers.astype(np.uint64))))

    def test(self, numbers: I64) -> NDArray[np.bool_]:
        """Whether the set has each of these numbers, (n,)."""
        places = numbers - self.first
        byte = places >> 3
        bits = self.bits.take(byte, mode="clip") >> (places & 7).astype(np.uint8)
        inside: NDArray[np.bool_] = (byte < len(self.bits)) & ((bits & 1) != 0) | (places < 0)
        return inside

    def masks(self, start: int, end: int, skipped: U64 | None) -> U64 | None:
        """The masks `skipped` of the anchors [start, end), with those of this set kept out of all tables."""
        if not self.count:
            return skipped
        dead = self.test(np.arange(start, end))
        if not dead.any():
            return skipped
        return np.where(dead, _EVERY, np.uint64(0) if skipped is None else skipped)


class Dead(NumberSet):
    """The dead anchors (superseded, expired or forgotten) of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(first_anchor(store))
        self.add(np.array([int.from_bytes(key, "big") for key, _ in with_prefix(store, DEAD)], np.int64))

    def kill(self, batch: Writes, anchors: I64) -> None:
        """Mark anchors as dead, in RAM at once and in the store through `batch`."""
        for anchor in anchors.tolist():
            batch.put(DEFAULT, DEAD + anchor.to_bytes(8, "big"), b"")
        self.add(anchors)


class Skips(NamedTuple):
    """Numbers of anchors that are kept out of some tables, ascending, and bit masks of these tables; both of
    shape (k,)."""

    numbers: I64
    masks: U64

    def masks_of(self, start: int, end: int) -> U64 | None:
        """A mask for each of the anchors [start, end); None if all of them entered all tables."""
        low, high = self.numbers.searchsorted([start, end])
        if low == high:
            return None
        dense = np.zeros(end - start, np.uint64)
        dense[self.numbers[low:high] - start] = self.masks[low:high]
        return dense


def _digest_of(numbers: I64, masks: U64) -> int:
    return digest(hash_words(hash_words(numbers.astype(np.uint64)) ^ masks))


class Skipped:
    """The anchors that were kept out of full buckets (rule 16), ordered by number."""

    def __init__(self, store: Store) -> None:
        stored = list(with_prefix(store, SKIPPED))
        self._count = len(stored)
        self._numbers = np.frombuffer(b"".join(key for key, _ in stored), ">i8").astype(np.int64)
        self._masks = np.frombuffer(b"".join(value for _, value in stored), "<u8").astype(np.uint64)
        self.digest = _digest_of(self._numbers, self._masks)
        """Digest of these anchors and their masks."""

    def add(self, batch: Writes, first: int, skipped: dict[int, int]) -> None:
        """Add anchors. `skipped` maps an index, relative to the anchor `first`, to a bit mask of the tables
        that the anchor is kept out of."""
        rows = np.fromiter(skipped, np.int64, len(skipped))
        order = np.argsort(rows)
        masks = np.fromiter(skipped.values(), np.uint64, len(skipped))[order]
        numbers, masks = first + rows[order][masks > 0], masks[masks > 0]
        if not len(numbers):
            return
        keys = [SKIPPED + each for each in numbers.astype(">i8").view("V8").tolist()]
        batch.put_many(DEFAULT, zip(keys, masks.astype("<u8").view("V8").tolist(), strict=True))
        start, end = self._count, self._count + len(numbers)
        if end > len(self._numbers):
            self._numbers = np.resize(self._numbers, 2 * end)
            self._masks = np.resize(self._masks, 2 * end)
        self._numbers[start:end] = numbers
        self._masks[start:end] = masks
        self.digest = union(self.digest, _digest_of(self._numbers[start:end], self._masks[start:end]))
        self._count = end  # set last, as other threads read the entries below it

    @property
    def count(self) -> int:
        """Number of these anchors."""
        return self._count

    def entries(self, start: int, end: int) -> Skips:
        """The entries of the anchors [start, end). May be called by any thread."""
        count = self._count
        numbers, masks = self._numbers[:count], self._masks[:count]
        low, high = numbers.searchsorted([start, end])
        return Skips(numbers[low:high].copy(), masks[low:high].copy())

    def masks(self, start: int, end: int) -> U64 | None:
        """A mask of skipped tables for each of the anchors [start, end); None if all entered all tables."""
        return self.entries(start, end).masks_of(start, end)


class StoredAnchors:
    """All anchors of a store: their rows, which are dead, and which skipped full buckets."""

    def __init__(self, store: Store, words: int) -> None:
        """`words` is the number of words by which tables index an anchor, W."""
        self.log: Final = AnchorLog(store, words)
        self.dead: Final = Dead(store)
        self.skipped: Final = Skipped(store)
        self.first_entry: Final = _number(store, FIRST_ENTRY)
        """Number of the first entry in triples."""


class _Log(Protocol):
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    def slices(self, start: int, end: int) -> Iterator[tuple[int, U64]]: ...


class _Skipped(Protocol):
    def entries(self, start: int, end: int) -> Skips: ...
    def masks(self, start: int, end: int) -> U64 | None: ...


class IndexedAnchors(Protocol):
    """What tiers search: the anchors of a store, or their entries in triples."""

    @property
    def log(self) -> _Log:
        """Their rows, as of `AnchorLog`."""

    @property
    def dead(self) -> NumberSet:
        """The dead ones."""

    @property
    def skipped(self) -> _Skipped:
        """The masks of those that are kept out of some tables, as of `Skipped`."""
