"""Dispatch of chunks to child processes: the queue, and the pages that one child has at a time.

A free child gets everything that waits, of all partitions. So a single page is dispatched at once, and many
pages together, which halves the cost per page. No Kafka and no processes here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.fingerprint.row import Row
from stream.roles.worker.backlog import Backlog, Chunk


class ChunkQueue:
    """The queue of chunks that wait for a child, in order of arrival."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._chunks: deque[Chunk] = deque()
        self._came = asyncio.Event()
        self._takers = 0

    def put(self, chunks: Sequence[Chunk]) -> None:
        """Queue new chunks. Pages may be added to the last chunk of a partition until it is taken."""
        self._chunks.extend(chunks)
        self._came.set()

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Return chunks to the front of the queue, because the child that has them is delayed."""
        self._chunks.extendleft(reversed(chunks))
        self._came.set()

    async def take(self) -> Dispatch:
        """Wait for pages, and return the share of a free child, within the bounds of a chunk."""
        self._takers += 1
        try:
            await self._some()
            return self._next_dispatch()
        finally:
            self._takers -= 1

    async def take_one(self) -> Dispatch:
        """Return the first page alone. Its chunk stays queued until all its pages were taken."""
        await self._some()
        chunk = self._chunks[0]
        self._backlog.begin(chunk)
        return Dispatch(self._backlog, [chunk], 1)

    def remove(self, partition: int) -> list[Chunk]:
        """Remove and return the chunks of a partition."""
        removed = [chunk for chunk in self._chunks if chunk.partition == partition]
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition != partition)
        return removed

    async def _some(self) -> None:
        """Wait until there is a page without a row."""
        while True:
            while self._chunks and self._chunks[0].answered:  # by the child that had it before `put_back`
                self._chunks.popleft()
            if self._chunks:
                return
            self._came.clear()
            await self._came.wait()

    def _next_dispatch(self) -> Dispatch:
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
        return Dispatch(self._backlog, taken)


class Dispatch:
    """The pages that one child has at a time, in order."""

    def __init__(self, backlog: Backlog, chunks: Sequence[Chunk], most: int | None = None) -> None:
        self._backlog = backlog
        self._pages = [
            (chunk, index) for chunk in chunks for index in range(len(chunk.rows), len(chunk.offsets))
        ][:most]
        self.values = [chunk.values[index] for chunk, index in self._pages]
        """Values of the page messages; None once answered."""
        self._answered = 0
        self._looked: int | None = 0

    @property
    def partitions(self) -> set[int]:
        """Partitions of the pages."""
        return {chunk.partition for chunk, _ in self._pages}

    @property
    def current_page(self) -> tuple[int, int]:
        """Partition and offset of the current page, the first one without a row; of the last page if all have
        one."""
        chunk, index = self._pages[min(self._answered, len(self._pages) - 1)]
        return chunk.partition, chunk.offsets[index]

    @property
    def slow(self) -> bool:
        """Whether the current page is slow: no row arrived between two calls of `take_after_slow_page`."""
        return self._looked is None and self._answered < len(self._pages)

    def answer(self, rows: Sequence[Row]) -> None:
        """Store the rows of the next pages. Rows that another child delivered before are dropped."""
        for row in rows:
            chunk, index = self._pages[self._answered]
            self.values[self._answered] = None
            self._answered += 1
            if index == len(chunk.rows):
                self._backlog.answer(chunk, [row])

    def take_after_slow_page(self) -> list[Chunk]:
        """Return the chunks after the current one, the first time that no row arrived since the last call."""
        answered, before = self._answered, self._looked
        if before is None or answered == len(self._pages):
            return []
        if answered > before:
            self._looked = answered
            return []
        self._looked = None
        slow, _ = self._pages[answered]
        return list(dict.fromkeys(chunk for chunk, _ in self._pages[answered:] if chunk is not slow))
