"""Batch queries (Manku, Jain, Das Sarma, WWW 2007, section 4): the small batch is indexed in tables, and the
large corpus is read once, in chunks and in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import numpy as np

from stream.errors import SettingsError
from stream.fingerprint.lanes import as_words
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.offline.prefix_tables import Entries, PrefixTables, find_all
from stream.tables.arrays import U64

Held = TypeVar("Held")

CHUNK: Final = 1 << 16
"""Corpus fingerprints per chunk: half a MiB of 64-bit ones, so that a chunk stays cached for all tables."""


class BatchTables:
    """A batch indexed in tables by hashed prefixes.

    `layout` is chosen by the size of the batch unless it is given. Raises SettingsError.
    """

    def __init__(self, batch: U64, width: int, distance: int, layout: Layout | None = None) -> None:
        words = np.ascontiguousarray(as_words(batch, width))
        self.width: Final = width
        self.layout: Final = layout if layout is not None else layout_for(len(words), width, distance)
        self.layout.refuse_beyond(distance)
        self._tables: Final = PrefixTables.of(Entries(words, words), self.layout.masks, distance)

    def scan(self, corpus: U64) -> tuple[Pairs, int]:
        """All near pairs of the batch (row) and a chunk (n, lanes) of the corpus (stored), and the number of
        comparisons."""
        words = np.ascontiguousarray(as_words(corpus, self.width))
        near = find_all(self._tables, Entries(words, words))
        stored, row, distance = near.pairs()
        return Pairs.merge([Pairs(row, stored, distance)]), near.compared

    @property
    def bytes(self) -> int:
        """Size of the tables and their filters in bytes."""
        return self._tables.bytes


def layout_for(batch: int, width: int, distance: int) -> Layout:
    """The layout with the fewest tables in which a probe has less than half a random candidate on average.

    A probe costs about as much as two comparisons: the filter rejects most probes, while each comparison is
    a random access to memory.
    """
    if not 0 <= distance < width:
        raise SettingsError(f"distance: {distance} bits of {width} is not within 0 to {width - 1}")
    smallest = None
    for chosen in range(1, 4):
        if distance + chosen > width:
            break
        try:
            layout = Layout.choose(distance + chosen, chosen, width)
        except SettingsError:  # too many tables
            break
        smallest = smallest or layout
        if layout.tables <= 64:
            smallest = layout
        if float((batch / 2.0**layout.prefix_bits).mean()) < 0.5:
            break
    assert smallest is not None  # noqa: S101  # one of distance + 1 blocks always exists
    return smallest


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
