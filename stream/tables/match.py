"""Batch queries, the paper's way (Manku, Jain, Das Sarma, WWW 2007, section 4): tables are made of the batch,
which is small, and the corpus, which is large and need not be sorted, is read once, in chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.tables.candidates import I64, expand
from stream.tables.design import U64
from stream.tables.layouts import Layout
from stream.tables.words import Pairs, as_words, distances

Held = TypeVar("Held")

CHUNK: Final = 1 << 16
"""Corpus fingerprints a chunk: half a MiB of 64 bits, so that a chunk and its keys stay cached."""
AT_ONCE: Final = 1 << 20
"""Pairs compared at once."""
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_FEWEST_SLOTS: Final = 12
_MOST_SLOTS: Final = 27


@dataclass(frozen=True, slots=True)
class _Table:
    keys: U64
    """Prefixes of the batch in order."""
    row: I64
    seen: NDArray[np.bool_]
    """Whether some prefix of the batch hashes there."""
    shift: np.uint64


class BatchTables:
    """A batch permuted into tables, in front of each a filter of the prefixes that it has.

    `layout` is chosen for the size of the batch unless given. Raises SettingsError.
    """

    def __init__(self, batch: U64, width: int, distance: int, layout: Layout | None = None) -> None:
        self.batch: Final = as_words(batch, width)
        self.width: Final = width
        self.distance: Final = distance
        self.layout: Final = layout if layout is not None else layout_for(len(self.batch), width, distance)
        self.layout.refuse_beyond(distance)
        # 32 slots a fingerprint: 3 % of foreign prefixes pass.
        slots = min(max(len(self.batch).bit_length() + 4, _FEWEST_SLOTS), _MOST_SLOTS)
        self._tables = [self._build(table, slots) for table in range(self.layout.tables)]

    def _build(self, table: int, slots: int) -> _Table:
        keys = self.layout.keys(self.batch, table)
        order = np.argsort(keys, kind="stable")
        shift = np.uint64(64 - slots)
        seen = np.zeros(1 << slots, np.bool_)
        seen[keys * _SPREAD >> shift] = True
        return _Table(keys[order], order, seen, shift)

    def scan(self, corpus: U64) -> tuple[Pairs, int]:
        """Pairs of the batch (row) and a chunk of the corpus (stored), and how many were compared."""
        words = as_words(corpus, self.width)
        parts, compared = [], 0
        for table, held in enumerate(self._tables):
            keys = self.layout.keys(words, table)
            passed = np.flatnonzero(held.seen.take((keys * _SPREAD >> held.shift).astype(np.int64)))
            if not len(passed):
                continue
            asked = keys[passed]
            starts = held.keys.searchsorted(asked)
            lengths = held.keys.searchsorted(asked, side="right") - starts
            met = np.flatnonzero(lengths)
            passed, starts, lengths = passed[met], starts[met], lengths[met]
            total = np.cumsum(lengths)
            first = 0
            while first < len(passed):
                before = int(total[first - 1]) if first else 0
                last = max(first + 1, int(total.searchsorted(before + AT_ONCE, side="right")))
                place, source = expand(starts[first:last], lengths[first:last])
                row, stored = held.row.take(place), passed[first:last].take(source)
                apart = distances(self.batch[row], words[stored])
                near = np.flatnonzero(apart <= self.distance)
                parts.append(Pairs(row[near], stored[near], apart[near]))
                compared += len(place)
                first = last
        return Pairs.merge(parts), compared

    @property
    def bytes(self) -> int:
        """Size of the tables and their filters."""
        return sum(t.keys.nbytes + t.row.nbytes + t.seen.nbytes for t in self._tables)


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
