"""The log of all anchors, and the sets of anchors that are dead or were kept out of full buckets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.minima import KEY_WORDS, MINIMA_WORDS
from stream.tables.arrays import I64, U8, U64, distinct
from stream.tables.store.contents import difference, digest, hash_words, union
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
MARKED_AT_ONCE: Final = 1 << 10
"""Anchors of a block of marks of dead ones."""


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
    """Number of a store's first anchor. Those before it are gone; numbers are not used again."""
    return _number(store, FIRST)


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


class AnchorLog:
    """The rows of all anchors from `first` on by number, in the family `log`. Rows before that may still be
    there.

    The key of a chunk is the number of its first anchor, u64 BE. Its value is the rows: for each anchor the W
    words by which tables index it and the first word of its fingerprint, all u64 LE. In memory, rows have the
    shape (n, W + 1).
    """

    def __init__(self, store: Store, words: int) -> None:
        self._store, self._columns = store, words + 1
        self._row_bytes = 8 * self._columns
        self.first = first_anchor(store)
        """Number of the first anchor."""
        self.removed = 0
        """Rows before this number were removed by this process."""
        stored = store.get(DEFAULT, [COUNT])[0]
        self.count = int.from_bytes(stored, "little") if stored else self.first
        """Number of anchors ever inserted, which is the number of the next one."""
        if self.count < self.first:
            raise damage_error(store.path, f"anchors begin at {self.first}, but {self.count} are counted")
        self._tail = self.read(self.count - self.count % CHUNK, self.count)

    @property
    def start(self) -> bytes:
        """The key of the chunk that has the first anchor."""
        return _key(self.first - self.first % CHUNK)

    def append(self, batch: Writes, anchors: U64) -> None:
        """Add anchors (n, W + 1) to the log, through `batch`."""
        first = self.count - len(self._tail)
        rows = np.concatenate([self._tail, anchors])
        content = rows.astype("<u8").tobytes()
        for start in range(0, len(rows), CHUNK):
            some = slice(start * self._row_bytes, (start + CHUNK) * self._row_bytes)
            batch.put(LOG, _key(first + start), content[some])
        self.count += len(anchors)
        self._tail = rows[len(rows) - self.count % CHUNK :].copy()
        batch.put(DEFAULT, COUNT, self.count.to_bytes(8, "little"))

    def raise_first(self, batch: Writes, first: int) -> None:
        """Let the anchors begin at `first`, through `batch`. The rows before it stay."""
        self.first = first
        batch.put(DEFAULT, FIRST, first.to_bytes(8, "little"))

    def take_removable(self, end: int) -> tuple[bytes, bytes]:
        """The bounds of the keys of rows before the chunk of the anchor `end`, which is not after the first
        one, for the caller to remove. They are told once."""
        bounds = _key(self.removed), _key(end - end % CHUNK)
        self.removed = end - end % CHUNK
        return bounds

    def read(self, start: int, end: int) -> U64:
        """Rows of the anchors [start, end), read from the store. Raises DamagedStateError."""
        first = start - start % CHUNK
        parts: list[bytes] = []
        have = first
        if first < end:
            for key, value in self._store.scan(LOG, _key(first)):
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
            keys = [_key(CHUNK * chunk) for chunk in chunks[starts[some]].tolist()]
            for start, end, value in zip(starts[some], ends[some], self._store.get(LOG, keys), strict=True):
                place = numbers[start:end] % CHUNK
                if len(value or b"") <= place[-1] * self._row_bytes:
                    raise damage_error(self._store.path, f"anchor log lacks anchor {numbers[end - 1]}")
                rows[start:end] = np.frombuffer(value or b"", "<u8").reshape(-1, self._columns)[place]
        return rows[np.searchsorted(numbers, anchors)]

    def slices(self, start: int, end: int, most: int = READ_AT_ONCE) -> Iterator[tuple[int, U64]]:
        """The anchors [start, end) in slices of at most so many, as (number of the first, rows)."""
        for first in range(start, end, most):
            yield first, self.read(first, min(first + most, end))


class Bitmap(NamedTuple):
    """Numbers from `base` on, which is a multiple of 8; all before it are in the set."""

    base: int
    bits: U8
    """Bit n % 8 of byte n // 8 tells whether the set has `base` + n. Numbers beyond the end are not in it."""

    def has(self, numbers: I64) -> NDArray[np.bool_]:
        """Whether the set has each of these numbers, (n,)."""
        places = numbers - self.base
        if not len(self.bits):
            return np.asarray(places < 0, np.bool_)
        byte = places >> 3
        bits = self.bits.take(byte, mode="clip") >> (places & 7).astype(np.uint8)
        inside: NDArray[np.bool_] = (byte < len(self.bits)) & ((bits & 1) != 0) | (places < 0)
        return inside


class NumberSet:
    """A set of numbers, as a bitmap. All numbers before `first` are in it, and not counted.

    One thread changes it. Others may call `test` at the same time.
    """

    def __init__(self, first: int) -> None:
        self.first = first - first % 8
        # Replaced as a whole, so that other threads see a base and the bitmap that begins there.
        self._bitmap = Bitmap(self.first, np.zeros(1 << 10, np.uint8))
        self.count = 0
        self.digest = 0
        """Digest of the set."""
        self.raise_first(first)

    @property
    def base(self) -> int:
        """The number of the first bit, a multiple of 8, not after `first`. `raise_first` and `rebase` change
        it."""
        return self._bitmap.base

    @property
    def bits(self) -> U8:
        """Those of `Bitmap`."""
        return self._bitmap.bits

    def _with_room(self, places: int) -> U8:
        """The bitmap, with room for so many numbers."""
        (base, bits), need = self._bitmap, (places + 7) >> 3
        if need > len(bits):
            grown = np.zeros(max(need, 2 * len(bits)), np.uint8)
            grown[: len(bits)] = bits
            self._bitmap = Bitmap(base, grown)
        return self.bits

    def add(self, numbers: I64) -> None:
        """Add numbers, of which some may be there already."""
        numbers = distinct(numbers)
        numbers = numbers[~self.test(numbers)]
        if not len(numbers):
            return
        places = numbers - self.base
        bits = self._with_room(int(places[-1]) + 1)
        np.bitwise_or.at(bits, places >> 3, (1 << (places & 7)).astype(np.uint8))
        self.count += len(numbers)
        self.digest = union(self.digest, _digest_of_numbers(numbers))

    def raise_first(self, first: int) -> None:
        """Let the numbers that count begin at `first`, which is not before the present one."""
        gone = np.arange(self.first, min(first, self.base + 8 * len(self.bits)), dtype=np.int64)
        gone = gone[self.test(gone)] if self.count else gone[:0]
        self.count -= len(gone)
        self.digest = difference(self.digest, _digest_of_numbers(gone))
        if first - self.base > 4 * len(self.bits):  # half of the bitmap
            self.rebase(first)
        bits, end = self._with_room(first - self.base), first - self.base
        bits[max(self.first - self.base, 0) >> 3 : end >> 3] = 0xFF
        if end & 7:
            bits[end >> 3] |= (1 << (end & 7)) - 1
        self.first = first

    def rebase(self, first: int | None = None) -> None:
        """Let the bitmap begin at `first`, by default the first number that counts."""
        base, bits = self._bitmap
        to = self.first if first is None else first
        to -= to % 8
        kept = bits[(to - base) >> 3 :]
        room = np.zeros(max(1 << 10, len(kept)), np.uint8)
        room[: len(kept)] = kept
        self._bitmap = Bitmap(to, room)

    def test(self, numbers: I64) -> NDArray[np.bool_]:
        """Whether the set has each of these numbers, (n,)."""
        return self._bitmap.has(numbers)

    def part(self, start: int, end: int) -> Bitmap:
        """A copy of the numbers of [start, end)."""
        base, bits = self._bitmap
        first = max(0, start - base) >> 3
        return Bitmap(base + 8 * first, bits[first : max(0, end - base + 7) >> 3].copy())


def _digest_of_numbers(numbers: I64) -> int:
    return digest(hash_words(numbers.astype(np.uint64)))


class Dead(NumberSet):
    """The dead anchors of a store, which nothing is to find any more.

    The key of a block is `DEAD` and the number of its first anchor, u64 BE; its value is the bits of
    `MARKED_AT_ONCE` anchors, as in `bits`.
    """

    def __init__(self, store: Store) -> None:
        first = first_anchor(store)
        super().__init__(first)
        dead = [np.zeros(0, np.int64)]
        for key, value in with_prefix(store, DEAD):
            places = np.flatnonzero(np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little"))
            dead.append(places + int.from_bytes(key, "big"))
        self.add(np.concatenate(dead))

    def kill(self, batch: Writes, anchors: I64) -> None:
        """Mark anchors as dead, in RAM at once and in the store through `batch`."""
        self.add(anchors)
        for block in distinct(anchors // MARKED_AT_ONCE).tolist():
            self._write(batch, block * MARKED_AT_ONCE)

    def _write(self, batch: Writes, start: int) -> None:
        """Write the block of the anchors from `start` on, without those that are gone."""
        marked = self.test(np.arange(start, start + MARKED_AT_ONCE))
        marked[: max(0, self.first - start)] = False
        if marked.any():
            batch.put(DEFAULT, DEAD + _key(start), np.packbits(marked, bitorder="little").tobytes())
        else:
            batch.delete(DEFAULT, DEAD + _key(start))

    def drop(self, batch: Writes, first: int) -> None:
        """Drop the marks of the anchors before `first`, which are gone, in RAM at once and in the store
        through `batch`."""
        before = self.count
        self.raise_first(first)
        if self.count < before:
            start = first - first % MARKED_AT_ONCE
            batch.delete_range(DEFAULT, DEAD, DEAD + _key(start))
            self._write(batch, start)


def is_marked_dead(store: Store, anchor: int) -> bool:
    """Whether an anchor that is not gone is dead, as its block says."""
    block, place = divmod(anchor, MARKED_AT_ONCE)
    value = store.get(DEFAULT, [DEAD + _key(block * MARKED_AT_ONCE)])[0]
    return value is not None and bool(value[place >> 3] >> (place & 7) & 1)


class Skips(NamedTuple):
    """Numbers of anchors that are kept out of some tables, ascending, and bit masks of these tables; both of
    shape (k,)."""

    numbers: I64
    masks: U64

    def masks_of(self, start: int, end: int) -> U64:
        """A mask for each of the anchors [start, end)."""
        low, high = self.numbers.searchsorted([start, end])
        dense = np.zeros(end - start, np.uint64)
        dense[self.numbers[low:high] - start] = self.masks[low:high]
        return dense


def _digest_of(numbers: I64, masks: U64) -> int:
    return digest(hash_words(hash_words(numbers.astype(np.uint64)) ^ masks))


class Skipped:
    """The anchors that were kept out of full buckets (rule 16), ordered by number.

    Their records have the words of a page's minima that no other anchor needs. They are in blocks, like the
    rows of the log: the key is `SKIPPED` and the number of the block's first anchor, u64 BE; the value has
    how many there are, and number, mask and words of each, all u64 LE. A block that is partly gone stays
    whole.

    One thread changes it. Others may call `entries` and `further` at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tail: U64 = np.zeros((0, 2), np.uint64)
        numbers, masks = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        for _, value in with_prefix(store, SKIPPED):
            self._tail = _records(store, value)
            numbers.append(self._tail[:, 0].copy())
            masks.append(self._tail[:, 1].copy())
        self._room = Skips(np.concatenate(numbers).astype(np.int64), np.concatenate(masks))
        self._start = int(self._room.numbers.searchsorted(first_anchor(store)))
        # Views of the room, replaced as a whole.
        self._held = Skips(self._room.numbers[self._start :], self._room.masks[self._start :])
        self.digest = _digest_of(*self._held)
        """Digest of these anchors and their masks."""

    def add(self, batch: Writes, first: int, skipped: dict[int, int], further: U64) -> None:
        """Add anchors. `skipped` maps an index, relative to the anchor `first`, to a bit mask of the tables
        that the anchor is kept out of. `further` are the words of the minima of all anchors from `first` on
        that no table has."""
        rows = np.fromiter(skipped, np.int64, len(skipped))
        order = np.argsort(rows)
        masks = np.fromiter(skipped.values(), np.uint64, len(skipped))[order]
        numbers, masks, rows = first + rows[order][masks > 0], masks[masks > 0], rows[order][masks > 0]
        if not len(numbers):
            return
        records = np.column_stack([numbers.astype(np.uint64), masks, further[rows]])
        if len(self._tail) and int(self._tail[-1, 0]) // CHUNK == numbers[0] // CHUNK:
            records = np.concatenate([self._tail, records])
        blocks = records[:, 0].astype(np.int64) // CHUNK
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        for block, some in zip(blocks[starts].tolist(), np.split(records, starts[1:]), strict=True):
            batch.put(DEFAULT, SKIPPED + _key(block * CHUNK), _block_of(some))
        self._tail = records[starts[-1] :]
        if self._start + self.count + len(numbers) > len(self._room.numbers):
            size = 2 * (self.count + len(numbers))
            self._room = Skips(np.resize(self._held.numbers, size), np.resize(self._held.masks, size))
            self._start = 0
        start = self._start + self.count
        end = start + len(numbers)
        self._room.numbers[start:end], self._room.masks[start:end] = numbers, masks
        self.digest = union(self.digest, _digest_of(numbers, masks))
        self._held = Skips(self._room.numbers[self._start : end], self._room.masks[self._start : end])

    def drop(self, batch: Writes, first: int) -> None:
        """Drop the anchors before `first`, which are gone, in RAM at once and in the store through
        `batch`."""
        numbers, masks = self._held
        batch.delete_range(DEFAULT, SKIPPED, SKIPPED + _key(first - first % CHUNK))
        if not (gone := int(numbers.searchsorted(first))):
            return
        self.digest = difference(self.digest, _digest_of(numbers[:gone], masks[:gone]))
        self._start += gone
        self._held = Skips(numbers[gone:], masks[gone:])
        if 2 * self._start > len(self._room.numbers):  # frees the memory
            self._room = self._held = Skips(numbers[gone:].copy(), masks[gone:].copy())
            self._start = 0

    def further(self, anchors: I64) -> U64:
        """The words (n, ...) of the further minima of some of these anchors (n,), ascending, read from the
        store. Raises DamagedStateError."""
        parts = [np.zeros((0, MINIMA_WORDS - KEY_WORDS), np.uint64)]
        blocks = anchors // CHUNK
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        keys = [SKIPPED + _key(CHUNK * block) for block in blocks[starts].tolist()]
        some = np.split(anchors, starts[1:]) if len(anchors) else []
        for wanted, value in zip(some, self._store.get(DEFAULT, keys), strict=True):
            records = _records(self._store, value or _EMPTY)
            there = np.isin(records[:, 0].astype(np.int64), wanted)
            if there.sum() != len(wanted):
                raise damage_error(self._store.path, f"minima of anchors {wanted.tolist()} are missing")
            parts.append(records[there, 2:])
        return np.concatenate(parts)

    @property
    def count(self) -> int:
        """Number of these anchors."""
        return len(self._held.numbers)

    def entries(self, start: int, end: int) -> Skips:
        """The entries of the anchors [start, end)."""
        numbers, masks = self._held
        low, high = numbers.searchsorted([start, end])
        return Skips(numbers[low:high].copy(), masks[low:high].copy())


def _records(store: Store, value: bytes) -> U64:
    """The records (k, 2 + further words) of a block of skipping anchors. Raises DamagedStateError."""
    try:
        words: U64 = np.frombuffer(value, "<u8").astype(np.uint64, copy=False)
        return words[1:].reshape(int(words[0]), -1)
    except (ValueError, IndexError):
        raise damage_error(store.path, f"marks of skipping anchors take {len(value)} bytes") from None


_EMPTY: Final = np.array([1, 2**64 - 1, 0], "<u8").tobytes()
"""A block of no anchor that there is."""


def _block_of(records: U64) -> bytes:
    return np.append(np.uint64(len(records)), records).astype("<u8", copy=False).tobytes()


class StoredAnchors:
    """All anchors of a store: their rows, which are dead, and which skipped full buckets."""

    def __init__(self, store: Store, words: int) -> None:
        """`words` is the number of words by which tables index an anchor, W."""
        self.log: Final = AnchorLog(store, words)
        self.dead: Final = Dead(store)
        self.skipped: Final = Skipped(store)
