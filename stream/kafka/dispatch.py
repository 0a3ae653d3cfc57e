"""Chunks on their way to children: what waits, and what one child has at once.

A child gets whatever waits when it is free, of all partitions: a page that comes alone goes at once, many go
together at half the cost. Pure but for the waiting: no Kafka, no processes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from stream.fingerprint.row import Row
from stream.kafka.backlog import CHUNK_BYTES, CHUNK_PAGES, Backlog, Chunk


class Waiting:
    """Chunks that wait for a child, first come, first served."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._chunks: deque[Chunk] = deque()
        self._came = asyncio.Event()
        self._takers = 0

    def put(self, chunks: Sequence[Chunk]) -> None:
        """Queue new chunks; pages may join the last of each partition until it is taken."""
        self._chunks.extend(chunks)
        self._came.set()

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Queue chunks before all others: a child that was given them does not come to them."""
        self._chunks.extendleft(reversed(chunks))
        self._came.set()

    async def take(self) -> Handful:
        """What a free child gets: its share of what waits, up to a chunk's bounds."""
        self._takers += 1
        try:
            await self._some()
            return self._handful()
        finally:
            self._takers -= 1

    async def take_one(self) -> Handful:
        """The first page alone; its chunk stays until all of it was taken so."""
        await self._some()
        chunk = self._chunks[0]
        self._backlog.begin(chunk)
        return Handful(self._backlog, [chunk], 1)

    def remove(self, partition: int) -> list[Chunk]:
        """Chunks of the partition, which wait here no longer."""
        removed = [chunk for chunk in self._chunks if chunk.partition == partition]
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition != partition)
        return removed

    async def _some(self) -> None:
        """Wait until there is a page without a row."""
        while True:
            while self._chunks and self._chunks[0].answered:  # by the child that had them first
                self._chunks.popleft()
            if self._chunks:
                return
            self._came.clear()
            await self._came.wait()

    def _handful(self) -> Handful:
        share = min(CHUNK_PAGES, -(-sum(len(chunk.offsets) for chunk in self._chunks) // self._takers))
        taken: list[Chunk] = []
        pages = size = 0
        while self._chunks:
            chunk = self._chunks[0]
            pages += len(chunk.offsets)
            size += chunk.size
            if taken and (pages > share or size > CHUNK_BYTES):
                break
            self._backlog.begin(self._chunks.popleft())
            taken.append(chunk)
        return Handful(self._backlog, taken)


class Handful:
    """What one child has at once, in order."""

    def __init__(self, backlog: Backlog, chunks: Sequence[Chunk], most: int | None = None) -> None:
        self._backlog = backlog
        self._pages = [
            (chunk, index) for chunk in chunks for index in range(len(chunk.rows), len(chunk.offsets))
        ][:most]
        self.values = [chunk.values[index] for chunk, index in self._pages]
        """Pages; dropped (None) once answered."""
        self._answered = 0
        self._looked: int | None = 0

    @property
    def partitions(self) -> set[int]:
        """Of its pages."""
        return {chunk.partition for chunk, _ in self._pages}

    @property
    def at_hand(self) -> tuple[int, int]:
        """Partition and offset of the first page without an answer; of the last one, once all have theirs."""
        chunk, index = self._pages[min(self._answered, len(self._pages) - 1)]
        return chunk.partition, chunk.offsets[index]

    @property
    def slow(self) -> bool:
        """Whether a page is at hand, and nothing was answered between two looks."""
        return self._looked is None and self._answered < len(self._pages)

    def answer(self, rows: Sequence[Row]) -> None:
        """Note the rows of the next pages; those that another child was quicker with are dropped."""
        for row in rows:
            chunk, index = self._pages[self._answered]
            self.values[self._answered] = None
            self._answered += 1
            if index == len(chunk.rows):
                self._backlog.answer(chunk, [row])

    def beyond_a_slow_page(self) -> list[Chunk]:
        """Chunks behind the one at hand, the first time that nothing was answered since the last look."""
        answered, before = self._answered, self._looked
        if before is None or answered == len(self._pages):
            return []
        if answered > before:
            self._looked = answered
            return []
        self._looked = None
        slow, _ = self._pages[answered]
        return list(dict.fromkeys(chunk for chunk, _ in self._pages[answered:] if chunk is not slow))
