"""What a worker holds of its partitions: pages in order, their rows as they come, source ranges that chain.

Pure: no Kafka, no clock, no tasks. One backlog lives as long as one assignment of partitions.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from stream.fingerprint.row import Row, Status
from stream.messages.journal import SourceRange
from stream.messages.trace import traceparent_of

CHUNK_PAGES: Final = 64
CHUNK_BYTES: Final = 1 << 20
"""A chunk is what one child gets at once: all that waits of a partition when the child is free, up to these
bounds, which are large enough to hide the pipe and small enough to share the work."""
BATCH_ROWS: Final = 512
BATCH_BYTES: Final = 256 << 10
"""Bounds of a journal record (rule 3); a single row may be larger and travels alone."""
RECORD_OVERHEAD: Final = 1024
"""Bytes charged for a held record besides its value and key: Python objects, and its row once there."""
ROW_OVERHEAD: Final = 96
"""Bytes of a row in a journal record besides sketch and strings: fixed columns and msgpack lengths."""
KEY_BYTES: Final = 64 << 10
"""Larger message keys would not fit the journal; their pages are rejected."""


class Record(Protocol):
    """What a backlog needs of a consumed record."""

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
class Source:
    """The topic that pages come from; a topic of the same name made later is another source (rule 4)."""

    cluster: str
    topic: str
    topic_id: str


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive pages of one partition, handed to a child together."""

    partition: int
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    """Dropped (None) once a page has a row, unless it was rejected: the dead letter needs it."""
    times: list[int] = field(default_factory=list)
    """Kafka timestamps, milliseconds since the epoch."""
    traces: dict[int, str] = field(default_factory=dict)
    """Index -> `traceparent` of the pages that have one."""
    rows: list[Row] = field(default_factory=list)
    """Rows of the first pages; they come in order."""
    size: int = 0
    """Bytes of its pages."""
    begun: bool = False
    """A child has it; until then, pages join."""
    taken: int = 0
    """How many rows have been taken out of the backlog."""
    cut: bool = False
    """Pages without a row were abandoned; a child that is still at them is not listened to."""

    @property
    def answered(self) -> bool:
        """Whether every page has its row."""
        return len(self.rows) == len(self.offsets)

    @property
    def pending(self) -> int:
        """Rows that can be taken."""
        return len(self.rows) - self.taken

    def cut_off(self) -> None:
        """Abandon the pages without a row. New lists: the child's conversation still reads the old ones."""
        self.cut = True
        answered = len(self.rows)
        self.offsets, self.keys, self.values = (
            self.offsets[:answered],
            self.keys[:answered],
            self.values[:answered],
        )

    def charge(self, index: int) -> int:
        """Bytes held for a page that was not taken."""
        return RECORD_OVERHEAD + len(self.values[index] or b"") + len(self.keys[index] or b"")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected page with all that its dead letter needs."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    row: Row


@dataclass(slots=True, eq=False)
class Batch:
    """The content of one journal record."""

    ranges: list[SourceRange] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    traces: dict[int, str] = field(default_factory=dict)
    """Row -> `traceparent`, where its page has one."""
    rejected: list[Rejected] = field(default_factory=list)
    size: int = 0
    """About as many bytes as the encoded record."""
    held: int = 0
    """Bytes that are held until the batch is released."""

    @property
    def full(self) -> bool:
        """Whether it is half of what a record may be, or more."""
        return len(self.rows) >= BATCH_ROWS // 2 or self.size >= BATCH_BYTES // 2

    @property
    def ends(self) -> dict[int, int]:
        """By partition, the offset to commit when the batch is in the journal."""
        return {each.partition: each.end for each in self.ranges}


@dataclass(slots=True)
class _Partition:
    next_start: int
    """Where the next range starts: the end of the one before (rule 1)."""
    chunks: deque[Chunk] = field(default_factory=deque)


class Backlog:
    """Ordered queues of chunks, one a partition, and the bytes they hold."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.held = 0
        """Bytes of pages and rows, until released or dropped."""
        self.unanswered = 0
        """Pages that have no row yet."""
        self._waiting_pages = self._waiting_bytes = 0
        self._partitions: OrderedDict[int, _Partition] = OrderedDict()
        self._declared: deque[SourceRange] = deque()

    def held_from(self, partition: int) -> int | None:
        """Where the partition's next range starts, while pages of it are held."""
        state = self._partitions.get(partition)
        return state.next_start if state and state.chunks else None

    @property
    def oldest(self) -> int | None:
        """Kafka timestamp, in milliseconds, of the oldest page held, as far as pages came in order."""
        firsts = (each.chunks[0] for each in self._partitions.values() if each.chunks)
        return min((chunk.times[chunk.taken] for chunk in firsts), default=None)

    def open(self, partition: int, start: int, *, opening: bool = False) -> None:
        """Begin a partition at `start`.

        An opening is declared at once, by an empty range, before any page: so the judge knows the
        partition's place, and pages that retention takes from now on are known to be lost.
        """
        self._partitions[partition] = _Partition(start)
        if opening:
            self._declared.append(self._range(partition, start, start, opening=True))

    def open_after_loss(self, partition: int, start: int, end: int) -> None:
        """Begin a partition at `end`: retention took `[start, end)` before anybody read it (rule 4).

        The log starts at `end`, so that is an opening as well, for a judge that waits for pages further
        below. It stands first: a judge that knows nothing of the partition would see a gap before the loss.
        """
        self.open(partition, end, opening=True)
        self._declared.append(self._range(partition, start, end, lost=True))

    @property
    def behind(self) -> bool:
        """Whether more than a chunk waits for children."""
        return self._waiting_pages > CHUNK_PAGES or self._waiting_bytes > CHUNK_BYTES

    def add(self, partition: int, records: Sequence[Record]) -> list[Chunk]:
        """Queue consecutive records; the new chunks, to be fingerprinted. Others joined one that waits."""
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
        """A child takes the chunk as it is, perhaps not the first one."""
        if chunk.begun:
            return
        chunk.begun = True
        self._waiting_pages -= len(chunk.offsets)
        self._waiting_bytes -= chunk.size

    def answer(self, chunk: Chunk, rows: Iterable[Row]) -> None:
        """Note the rows of the chunk's next pages."""
        if chunk.cut:
            return
        for row in rows:
            index = len(chunk.rows)
            if len(chunk.keys[index] or b"") > KEY_BYTES:
                row = Row(Status.REJECTED, row.url, row.url_key, row.fetched_at, reason="key_too_large")
            if row.status != Status.REJECTED:
                self.held -= len(chunk.values[index] or b"")
                chunk.values[index] = None
            chunk.rows.append(row)
            self.unanswered -= 1

    def take(self, rows: int = BATCH_ROWS, size: int = BATCH_BYTES) -> Batch | None:
        """The finished prefixes of the partitions, up to these bounds; None when nothing is finished."""
        batch = Batch()
        while self._declared and len(batch.ranges) < rows:
            batch.ranges.append(self._declared.popleft())
        for partition in () if self._declared else tuple(self._partitions):
            if self._take_from(partition, batch, rows, size):
                self._partitions.move_to_end(partition)  # the others come first next time
        return batch if batch.ranges else None

    def _take_from(self, partition: int, batch: Batch, rows: int, size: int) -> int:
        """Move the partition's finished prefix into the batch, as far as there is room; how many rows."""
        state = self._partitions[partition]
        before = len(batch.rows)
        while state.chunks and len(batch.rows) < rows:
            chunk = state.chunks[0]
            if not chunk.pending:
                break
            row, key = chunk.rows[chunk.taken], chunk.keys[chunk.taken]
            weight = _weight(row, key) + len(chunk.traces.get(chunk.taken, ""))
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

    def _move(self, chunk: Chunk, batch: Batch, weight: int) -> None:
        index = chunk.taken
        row, offset, key = chunk.rows[index], chunk.offsets[index], chunk.keys[index]
        batch.rows.append(row)
        batch.offsets.append(offset)
        batch.keys.append(key if len(key or b"") <= KEY_BYTES else None)
        batch.times.append(chunk.times[index])
        if index in chunk.traces:
            batch.traces[len(batch.rows) - 1] = chunk.traces[index]
        batch.size += weight
        batch.held += chunk.charge(index)
        if row.status == Status.REJECTED:
            batch.rejected.append(Rejected(chunk.partition, offset, key, chunk.values[index], row))
        chunk.values[index] = None
        chunk.taken += 1

    def release(self, batch: Batch) -> None:
        """The batch is in the journal: its bytes are free."""
        self.held -= batch.held

    def keep_finished(self) -> None:
        """Abandon every page that has no row, and all behind it."""
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
        """Forget the partition and what is held of it (not of batches that were taken)."""
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
        cluster, topic, topic_id = self.source.cluster, self.source.topic, self.source.topic_id
        return SourceRange(cluster, topic, topic_id, partition, start, end, rows, opening, lost, published)


def _weight(row: Row, key: bytes | None) -> int:
    """About as many bytes as the row takes in an encoded record."""
    strings = sum(len(each.encode()) for each in (row.url, row.url_key, row.reason) if each)
    return ROW_OVERHEAD + len(row.sketch) + strings + len(key or b"")
