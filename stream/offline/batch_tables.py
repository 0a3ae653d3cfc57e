"""Batch queries (Manku, Jain, Das Sarma, WWW 2007, section 4): the small batch is indexed in tables, and the
large corpus is read once, in chunks and in any order.

Look-ups need only equal prefixes, so nothing is permuted or sorted: the tables are hash tables, whose keys
are the masked prefix bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np

from stream.compiled import compiled
from stream.errors import SettingsError
from stream.fingerprint.distance_compiled import hamming_distance
from stream.offline.layouts import Layout
from stream.tables.arrays import I64, U8, U32, U64
from stream.tables.fingerprint_lanes import Pairs, as_words

Held = TypeVar("Held")

CHUNK: Final = 1 << 16
"""Corpus fingerprints per chunk: half a MiB of 64-bit ones, so that a chunk stays cached for all tables."""
AT_ONCE: Final = 1 << 18
"""Most pairs found by one call of the compiled loop."""
_SPREAD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Odd multipliers, one per 64 bits, for Fibonacci hashing (Knuth, The Art of Computer Programming, section
6.4)."""
_FEWEST_SLOTS: Final = 12
_MOST_SLOTS: Final = 30
_ONE: Final = np.uint64(1)
_SIX: Final = np.uint64(6)
_LOW: Final = np.uint64(63)


class BatchTables:
    """A batch indexed in tables by hashed prefixes. Each table has a bitmap filter in front of it.

    `layout` is chosen by the size of the batch unless it is given. Raises SettingsError.
    """

    def __init__(self, batch: U64, width: int, distance: int, layout: Layout | None = None) -> None:
        self.batch: Final = np.ascontiguousarray(as_words(batch, width))
        self.width: Final = width
        self.distance: Final = distance
        self.layout: Final = layout if layout is not None else layout_for(len(self.batch), width, distance)
        self.layout.refuse_beyond(distance)
        size, tables = len(self.batch), self.layout.tables
        # 32 filter bits per fingerprint let 3 % of foreign prefixes pass.
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
        """All near pairs of the batch (row) and a chunk of the corpus (stored), and the number of
        comparisons."""
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
        """Size of the tables and their filters in bytes."""
        return self._seen.nbytes + self._first.nbytes + self._hashes.nbytes + self._rows.nbytes


@compiled
def hash_prefix(words: U64, which: int, mask: U64) -> np.uint64:
    """The hash of a table's prefix, given by `mask`, of the fingerprint in row `which`."""
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
    """Fill one table; its arrays are initially zero.

    Sets a bit in the filter `seen` for each hash. Writes the rows of the batch and their hashes, grouped by
    bucket, to `rows` and `hashes`, and the start of each bucket to `first`.
    """
    for row in range(len(batch)):
        hashed = hash_prefix(batch, row, mask)
        slot = hashed >> slot_shift
        seen[slot >> _SIX] |= _ONE << (slot & _LOW)
        first[hashed >> bucket_shift] += 1
    end = np.uint32(0)
    for bucket in range(len(first)):
        end += first[bucket]
        first[bucket] = end
    # A counting sort: backwards, each row takes the last free place of its bucket.
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
    """Write near pairs, each once, to `row`, `stored` and `apart`, with their distances. Returns the number
    of pairs and of comparisons.

    `at` holds the table, corpus row and position at which to start. It is updated to where the output was
    full, or to beyond the last table.
    """
    found = compared = 0
    passed = np.empty(len(words), np.int64)
    for table in range(at[0], len(masks)):
        mask, seen_here, first_here, hashes_here = masks[table], seen[table], first[table], hashes[table]
        # Branch-free, so that the cache misses of many filter look-ups overlap.
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
                bits = hamming_distance(words, word, batch, held)
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
    """Whether this is the first table whose prefix the two share. A pair is reported by that table only."""
    for each in range(table + 1):
        shared = True
        for part in range(len(one)):
            shared &= not (one[part] ^ other[part]) & masks[each, part]
        if shared:
            return each == table
    return False


def layout_for(batch: int, width: int, distance: int) -> Layout:
    """The layout with the fewest tables in which a probe has less than half a random candidate on average.

    A probe costs about as much as two comparisons: the filter rejects most probes, while each comparison is
    a random access to memory.
    """
    if not 0 <= distance < width:
        raise SettingsError(f"distance: {distance} bits of {width} is not within 0 to {width - 1}")
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
    """Scan the chunks of a corpus on `threads` threads. Yields pairs, the number of comparisons, and the
    value that accompanies the chunk.

    Results are in the order of the chunks, and `stored` is relative to the chunk. At most `threads` + 1
    chunks are in memory.
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
