"""Batch queries, the paper's way (Manku, Jain, Das Sarma, WWW 2007, section 4): tables are made of the batch,
which is small, and the corpus, which is large and need not be sorted, is read once, in chunks.

Only equal prefixes are asked for, so nothing is permuted or sorted: what stands in a table's prefix is masked
and hashed, and the batch is filed by that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np

from stream.compiled import compiled, popcount
from stream.errors import SettingsError
from stream.offline.layouts import Layout
from stream.tables.arrays import I64, U8, U32, U64
from stream.tables.words import Pairs, as_words

Held = TypeVar("Held")

CHUNK: Final = 1 << 16
"""Corpus fingerprints a chunk: half a MiB of 64 bits, so that a chunk stays cached from table to table."""
AT_ONCE: Final = 1 << 18
"""Pairs that one call of the compiled loop has room for."""
_SPREAD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Odd numbers, one a word, for Fibonacci hashing (Knuth, The Art of Computer Programming, section 6.4)."""
_FEWEST_SLOTS: Final = 12
_MOST_SLOTS: Final = 30
_ONE: Final = np.uint64(1)
_SIX: Final = np.uint64(6)
_LOW: Final = np.uint64(63)


class BatchTables:
    """A batch filed in tables by hashed prefixes, in front of each a filter of those that it has.

    `layout` is chosen for the size of the batch unless given. Raises SettingsError.
    """

    def __init__(self, batch: U64, width: int, distance: int, layout: Layout | None = None) -> None:
        self.batch: Final = np.ascontiguousarray(as_words(batch, width))
        self.width: Final = width
        self.distance: Final = distance
        self.layout: Final = layout if layout is not None else layout_for(len(self.batch), width, distance)
        self.layout.refuse_beyond(distance)
        size, tables = len(self.batch), self.layout.tables
        # 32 slots a fingerprint: 3 % of foreign prefixes pass.
        slots = min(max(size.bit_length() + 4, _FEWEST_SLOTS), _MOST_SLOTS)
        buckets = max(1, size.bit_length())
        self._slot_shift, self._bucket_shift = np.uint64(64 - slots), np.uint64(64 - buckets)
        self._seen = np.zeros((tables, 1 << slots - 6), np.uint64)
        self._first = np.zeros((tables, (1 << buckets) + 1), np.uint32)
        self._hashes, self._rows = np.empty((tables, size), np.uint64), np.empty((tables, size), np.uint32)
        for table, mask in enumerate(self.layout.masks):
            _file(
                self.batch, mask, self._slot_shift, self._bucket_shift,
                self._seen[table], self._first[table], self._hashes[table], self._rows[table],
            )  # fmt: skip

    def scan(self, corpus: U64) -> tuple[Pairs, int]:
        """Pairs of the batch (row) and a chunk of the corpus (stored), and how many were compared."""
        words = np.ascontiguousarray(as_words(corpus, self.width))
        parts, compared, at = [], 0, np.zeros(3, np.int64)
        while at[0] < self.layout.tables:
            row, stored = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.int64)
            apart = np.empty(AT_ONCE, np.uint8)
            found, more = _scan(
                words, self.batch, self.layout.masks, self._slot_shift, self._bucket_shift,
                self._seen, self._first, self._hashes, self._rows, self.distance, at, row, stored, apart,
            )  # fmt: skip
            parts.append(Pairs(row[:found], stored[:found], apart[:found]))
            compared += more
        return Pairs.merge(parts), compared

    @property
    def bytes(self) -> int:
        """Size of the tables and their filters."""
        return self._seen.nbytes + self._first.nbytes + self._hashes.nbytes + self._rows.nbytes


@compiled
def hash_prefix(words: U64, which: int, mask: U64) -> np.uint64:
    """Of the prefix of one of the fingerprints."""
    hashed = (words[which, 0] & mask[0]) * _SPREAD[0]
    for part in range(1, words.shape[1]):
        hashed += (words[which, part] & mask[part]) * _SPREAD[part]
    return np.uint64(hashed)


@compiled
def _file(
    batch: U64,
    mask: U64,
    slot_shift: np.uint64,
    bucket_shift: np.uint64,
    seen: U64,
    first: U32,
    hashes: U64,
    rows: U32,
) -> None:
    """Fill one table, all zero before: a bit of `seen` for each hash; the batch by buckets in `rows`, with
    their `hashes`; in `first` where each bucket begins."""
    for row in range(len(batch)):
        hashed = hash_prefix(batch, row, mask)
        slot = hashed >> slot_shift
        seen[slot >> _SIX] |= _ONE << (slot & _LOW)
        first[hashed >> bucket_shift] += 1
    end = np.uint32(0)
    for bucket in range(len(first)):
        end += first[bucket]
        first[bucket] = end
    # From the last row on, each goes to the end of what is left of its bucket.
    for row in range(len(batch) - 1, -1, -1):
        hashed = hash_prefix(batch, row, mask)
        place = hashed >> bucket_shift
        first[place] -= 1
        hashes[first[place]] = hashed
        rows[first[place]] = row


@compiled
def _scan(
    words: U64,
    batch: U64,
    masks: U64,
    slot_shift: np.uint64,
    bucket_shift: np.uint64,
    seen: U64,
    first: U32,
    hashes: U64,
    rows: U32,
    distance: int,
    at: I64,
    row: I64,
    stored: I64,
    apart: U8,
) -> tuple[int, int]:
    """Fill `row`, `stored` and `apart` with pairs, each once, from table, word and place `at` on, which is
    moved to where there was no room, or beyond the last table. Returns how many, and how many were compared.
    """
    found = compared = 0
    passed = np.empty(len(words), np.int64)
    for table in range(at[0], len(masks)):
        mask, seen_here, first_here, hashes_here = masks[table], seen[table], first[table], hashes[table]
        # Without a branch, so that the processor waits for many places of the filter at a time.
        count = 0
        for each in range(at[1], len(words)):
            slot = hash_prefix(words, each, mask) >> slot_shift
            passed[count] = each
            count += int(seen_here[slot >> _SIX] >> (slot & _LOW) & _ONE)
        for word in passed[:count]:
            hashed = hash_prefix(words, word, mask)
            bucket = hashed >> bucket_shift
            for place in range(max(at[2], first_here[bucket]), first_here[bucket + _ONE]):
                if hashes_here[place] != hashed:
                    continue
                held = rows[table, place]
                bits = 0
                for part in range(words.shape[1]):
                    bits += int(popcount(words[word, part] ^ batch[held, part]))
                if bits <= distance and met_first(words[word], batch[held], masks, table):
                    if found == len(row):
                        at[:] = table, word, place
                        return found, compared
                    row[found], stored[found], apart[found] = held, word, bits
                    found += 1
                compared += 1
            at[2] = 0
        at[1] = 0
    at[0] = len(masks)
    return found, compared


@compiled
def met_first(one: U64, other: U64, masks: U64, table: int) -> bool:
    """Whether they share this table's prefix, and none before."""
    for each in range(table + 1):
        shared = True
        for part in range(len(one)):
            shared &= not (one[part] ^ other[part]) & masks[each, part]
        if shared:
            return each == table
    return False


def layout_for(batch: int, width: int, distance: int) -> Layout:
    """The layout of fewest tables whose probes meet less than half a batch fingerprint each, by chance.

    A probe costs about as much as two comparisons: the filter drops most, comparisons gather from memory.
    """
    if not 0 <= distance < width:
        raise SettingsError(f"distance: {distance} bits of {width}; allowed are 0 to {width - 1}")
    found = None
    for chosen in range(1, 4):
        if distance + chosen > width:
            break
        try:
            layout = Layout.choose(distance + chosen, chosen, width)
        except SettingsError:  # too many tables
            break
        found = found or layout
        if layout.tables <= 64:
            found = layout
        if float((batch / 2.0**layout.prefix_bits).mean()) < 0.5:
            break
    assert found is not None  # noqa: S101  # one of distance + 1 blocks always exists
    return found


def match(
    tables: BatchTables, chunks: Iterable[tuple[U64, Held]], threads: int
) -> Iterator[tuple[Pairs, int, Held]]:
    """Scan the chunks of a corpus on `threads` threads: pairs, comparisons, and what came with the chunk.

    Answers come in the order of the chunks; `stored` counts within its chunk. A chunk more than there are
    threads is held at once.
    """

    def scan(corpus: U64, held: Held) -> tuple[Pairs, int, Held]:
        return (*tables.scan(corpus), held)

    with ThreadPoolExecutor(threads, thread_name_prefix="match") as pool:
        under_way: deque[Future[tuple[Pairs, int, Held]]] = deque()
        for corpus, held in chunks:
            under_way.append(pool.submit(scan, corpus, held))
            if len(under_way) > threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
