"""The worker's backlog: pages in flight per partition, in order, with their rows and contiguous source
ranges.

Pure: no Kafka, no clock, no tasks. A backlog lives as long as one assignment of partitions.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.fingerprint.row import Row, Status, has_large_key, without_large_key
from stream.messages.appends import APPEND_BYTES, APPEND_ROWS, weight_of
from stream.messages.journal import SourceRange
from stream.messages.trace import traceparent_of

RECORD_OVERHEAD: Final = 1024
"""Memory charged for a page besides value and key: Python objects and its row."""


class PageRecord(Protocol):
    """The fields of a consumed record that the backlog uses."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True)
class PagesTopic:
    """The topic of the pages. A recreated topic of the same name is another source (rule 4)."""

    cluster_id: str
    topic: str
    topic_id: str


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive pages of one partition, dispatched to a child together."""

    partition: int
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    """None once a page has a row, unless it was rejected, since the dead letter needs it."""
    times: list[int] = field(default_factory=list)
    """Kafka timestamps, in milliseconds since the epoch."""
    traces: dict[int, str] = field(default_factory=dict)
    """Index -> `traceparent` of the page, if it has one."""
    rows: list[Row] = field(default_factory=list)
    """Rows of the first pages. They arrive in order."""
    size: int = 0
    """Bytes of the pages."""
    begun: bool = False
    """Whether a child has it. Until then, pages may be added."""
    taken: int = 0
    """Number of rows taken out of the backlog."""
    cut: bool = False
    """Whether the pages without a row were abandoned. Further rows from a child are then ignored."""

    @property
    def answered(self) -> bool:
        """Whether all pages have a row."""
        return len(self.rows) == len(self.offsets)

    @property
    def pending(self) -> int:
        """Number of rows that can be taken."""
        return len(self.rows) - self.taken

    def cut_off(self) -> None:
        """Abandon the pages without a row, by new lists, because the old ones are still read for the
        child."""
        self.cut = True
        answered = len(self.rows)
        self.offsets, self.keys, self.values = (
            self.offsets[:answered],
            self.keys[:answered],
            self.values[:answered],
        )

    def charge(self, index: int) -> int:
        """Return the memory charged for a page."""
        return RECORD_OVERHEAD + len(self.values[index] or b"") + len(self.keys[index] or b"")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected page with the content of its dead letter."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    row: Row


@dataclass(slots=True, eq=False)
class JournalBatch:
    """The content of one journal record."""

    ranges: list[SourceRange] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    traces: dict[int, str] = field(default_factory=dict)
    """Row -> `traceparent` of its page, if it has one."""
    rejected: list[Rejected] = field(default_factory=list)
    size: int = 0
    """Approximate size of the encoded record in bytes."""
    held: int = 0
    """Memory charged until the batch is released, in bytes."""

    @property
    def full(self) -> bool:
        """Whether the batch has at least half of the maximum size, so that it is worth appending."""
        return len(self.rows) >= APPEND_ROWS // 2 or self.size >= APPEND_BYTES // 2

    @property
    def ends(self) -> dict[int, int]:
        """Partition -> offset to commit once the batch is in the journal."""
        return {each.partition: each.end for each in self.ranges}


@dataclass(slots=True)
class _Partition:
    next_start: int
    """Start of the next range, which is the end of the previous one (rule 1)."""
    chunks: deque[Chunk] = field(default_factory=deque)


class Backlog:
    """Queues of chunks in order, one per partition, with their memory."""

    def __init__(self, source: PagesTopic) -> None:
        self.source = source
        self.held = 0
        """Bytes of pages and rows in memory, until released or dropped."""
        self.unanswered = 0
        """Number of pages without a row."""
        self._waiting_pages = self._waiting_bytes = 0
        self._partitions: OrderedDict[int, _Partition] = OrderedDict()
        self._declared: deque[SourceRange] = deque()

    def held_from(self, partition: int) -> int | None:
        """Return the start of the partition's next range if it has pages in the backlog, else None."""
        state = self._partitions.get(partition)
        return state.next_start if state and state.chunks else None

    @property
    def oldest(self) -> int | None:
        """Kafka timestamp in milliseconds of the oldest page, assuming that timestamps ascend."""
        firsts = (each.chunks[0] for each in self._partitions.values() if each.chunks)
        return min((chunk.times[chunk.taken] for chunk in firsts), default=None)

    def open(self, partition: int, start: int, *, opening: bool = False) -> None:
        """Start a partition at offset `start`.

        An opening is declared immediately by an empty range, before any page. So the judge knows the
        partition's position, and pages that retention deletes from now on are known to be lost.
        """
        self._partitions[partition] = _Partition(start)
        if opening:
            self._declared.append(self._range(partition, start, start, opening=True))

    def open_after_loss(self, partition: int, start: int, end: int) -> None:
        """Start a partition at `end`, because retention deleted `[start, end)` before it was read (rule 4).

        The log starts at `end`, so the loss is also an opening. The judge then counts it whether it waits
        there, waits for even earlier pages, or does not know the partition. In two ranges, one of them
        would hide the loss from a judge that does not know the partition, or be a gap.
        """
        self._partitions[partition] = _Partition(end)
        self._declared.append(self._range(partition, start, end, opening=True, lost=True))

    @property
    def behind(self) -> bool:
        """Whether more than one chunk waits for children."""
        return self._waiting_pages > CHUNK_PAGES or self._waiting_bytes > CHUNK_BYTES

    def add(self, partition: int, records: Sequence[PageRecord]) -> list[Chunk]:
        """Queue consecutive records. Returns the new chunks; other records were added to a waiting chunk."""
        chunks: list[Chunk] = []
        queue = self._partitions[partition].chunks
        chunk = queue[-1] if queue and not queue[-1].begun else None
        for record in records:
            length = len(record.value or b"")
            if chunk is None or len(chunk.offsets) == CHUNK_PAGES or chunk.size + length > CHUNK_BYTES:
                chunk = Chunk(partition)
                chunks.append(chunk)
                queue.append(chunk)
            chunk.offsets.append(record.offset)
            chunk.keys.append(record.key)
            chunk.values.append(record.value)
            chunk.times.append(record.timestamp)
            if record.headers and (trace := traceparent_of(record.headers)):
                chunk.traces[len(chunk.offsets) - 1] = trace
            chunk.size += length
            self.held += chunk.charge(-1)
            self.unanswered += 1
            self._waiting_pages += 1
            self._waiting_bytes += length
        return chunks

    def begin(self, chunk: Chunk) -> None:
        """Record that a child takes the chunk, possibly not the first child."""
        if chunk.begun:
            return
        chunk.begun = True
        self._waiting_pages -= len(chunk.offsets)
        self._waiting_bytes -= chunk.size

    def answer(self, chunk: Chunk, rows: Iterable[Row]) -> None:
        """Store the rows of the chunk's next pages."""
        if chunk.cut:
            return
        for row in rows:
            index = len(chunk.rows)
            row = without_large_key(row, chunk.keys[index])
            if row.status != Status.REJECTED:
                self.held -= len(chunk.values[index] or b"")
                chunk.values[index] = None
            chunk.rows.append(row)
            self.unanswered -= 1

    def take(self, rows: int = APPEND_ROWS, size: int = APPEND_BYTES) -> JournalBatch | None:
        """Take finished pages from the front of all partitions, within these bounds; None if there are
        none."""
        batch = JournalBatch()
        while self._declared and len(batch.ranges) < rows:
            batch.ranges.append(self._declared.popleft())
        for partition in () if self._declared else tuple(self._partitions):
            if self._take_from(partition, batch, rows, size):
                self._partitions.move_to_end(partition)  # round robin: the others come first next time
        return batch if batch.ranges else None

    def _take_from(self, partition: int, batch: JournalBatch, rows: int, size: int) -> int:
        """Move finished pages from the front of the partition into the batch while there is room. Returns how
        many."""
        state = self._partitions[partition]
        before = len(batch.rows)
        while state.chunks and len(batch.rows) < rows:
            chunk = state.chunks[0]
            if not chunk.pending:
                break
            row, key = chunk.rows[chunk.taken], chunk.keys[chunk.taken]
            weight = weight_of(row, key) + len(chunk.traces.get(chunk.taken, ""))
            if batch.rows and batch.size + weight > size:
                break
            self._move(chunk, batch, weight)
            if chunk.taken == len(chunk.offsets):
                state.chunks.popleft()
        count = len(batch.rows) - before
        if count:
            end = batch.offsets[-1] + 1
            oldest = max(0, min(batch.times[before:]))
            batch.ranges.append(self._range(partition, state.next_start, end, rows=count, published=oldest))
            state.next_start = end
        return count

    def _move(self, chunk: Chunk, batch: JournalBatch, weight: int) -> None:
        index = chunk.taken
        row, offset, key = chunk.rows[index], chunk.offsets[index], chunk.keys[index]
        batch.rows.append(row)
        batch.offsets.append(offset)
        batch.keys.append(None if has_large_key(key) else key)
        batch.times.append(chunk.times[index])
        if index in chunk.traces:
            batch.traces[len(batch.rows) - 1] = chunk.traces[index]
        batch.size += weight
        batch.held += chunk.charge(index)
        if row.status == Status.REJECTED:
            batch.rejected.append(Rejected(chunk.partition, offset, key, chunk.values[index], row))
        chunk.values[index] = None
        chunk.taken += 1

    def release(self, batch: JournalBatch) -> None:
        """Free the memory of a batch that is in the journal."""
        self.held -= batch.held

    def keep_finished(self) -> None:
        """Abandon, in each partition, the first page without a row and all later ones."""
        for state in self._partitions.values():
            kept: deque[Chunk] = deque()
            whole = True
            for chunk in state.chunks:
                if whole and chunk.pending:
                    kept.append(chunk)
                    first = len(chunk.rows)
                else:
                    first = chunk.taken
                whole = whole and len(chunk.rows) == len(chunk.offsets)
                self._abandon(chunk, first)
            state.chunks = kept

    def drop(self, partition: int) -> None:
        """Drop a partition with its pages, except those in batches that were taken."""
        state = self._partitions.pop(partition)
        self._declared = deque(each for each in self._declared if each.partition != partition)
        for chunk in state.chunks:
            self._abandon(chunk, chunk.taken)

    def _abandon(self, chunk: Chunk, first: int) -> None:
        self.begin(chunk)
        self.unanswered -= len(chunk.offsets) - len(chunk.rows)
        self.held -= sum(map(chunk.charge, range(first, len(chunk.offsets))))
        chunk.cut_off()

    def _range(
        self,
        partition: int,
        start: int,
        end: int,
        *,
        rows: int = 0,
        opening: bool = False,
        lost: bool = False,
        published: int = 0,
    ) -> SourceRange:
        cluster_id, topic, topic_id = self.source.cluster_id, self.source.topic, self.source.topic_id
        return SourceRange(cluster_id, topic, topic_id, partition, start, end, rows, opening, lost, published)
