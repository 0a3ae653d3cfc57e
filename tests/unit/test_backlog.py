"""The worker's backlog: ranges are contiguous, only finished prefixes leave, and memory is accounted for."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.fingerprint.row import KEY_BYTES, Row, Status
from stream.messages.appends import APPEND_ROWS
from stream.messages.journal import SourceRange
from stream.messages.trace import traceparent_of
from stream.roles.worker.backlog import (
    RECORD_OVERHEAD,
    Backlog,
    Chunk,
    JournalBatch,
    PagesTopic,
)

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SOURCE = PagesTopic("cluster", "pages", "f" * 32)


@dataclass(frozen=True)
class Record:
    offset: int
    value: bytes | None = b"page"
    key: bytes | None = b"key"
    timestamp: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records(*offsets: int) -> list[Record]:
    return [Record(offset) for offset in offsets]


def row(status: Status = Status.READY) -> Row:
    return Row(status, "http://a/", None)


def added(backlog: Backlog, partition: int, pages: list[Record]) -> list[Chunk]:
    """The new chunks, each taken by a child."""
    chunks = backlog.add(partition, pages)
    for chunk in chunks:
        backlog.begin(chunk)
    return chunks


def answer_all(backlog: Backlog, chunks: list[Chunk]) -> None:
    for chunk in chunks:
        backlog.answer(chunk, [row() for _ in chunk.offsets])


def span(batch: JournalBatch) -> list[tuple[int, int, int, int]]:
    return [(each.partition, each.start, each.end, each.rows) for each in batch.ranges]


def taken(backlog: Backlog, **bounds: int) -> JournalBatch:
    batch = backlog.take(**bounds)
    assert batch is not None
    return batch


def opened(*partitions: int, start: int = 0) -> Backlog:
    backlog = Backlog(SOURCE)
    for partition in partitions:
        backlog.open(partition, start)
    return backlog


def test_ranges_chain_over_the_holes_that_markers_and_compaction_leave() -> None:
    backlog = opened(0, start=5)
    answer_all(backlog, added(backlog, 0, records(7, 8, 11)))
    assert span(taken(backlog)) == [(0, 5, 12, 3)]
    answer_all(backlog, added(backlog, 0, records(20)))
    assert span(taken(backlog)) == [(0, 12, 21, 1)]
    assert backlog.take() is None


def test_ranges_say_when_their_oldest_page_was_published() -> None:
    backlog = opened(0, 1)
    answer_all(backlog, added(backlog, 0, [Record(0, timestamp=300), Record(1, timestamp=100), Record(2)]))
    answer_all(backlog, added(backlog, 1, [Record(0, timestamp=200)]))
    first, second, rest = (backlog.take(rows=rows) for rows in (2, 1, 1))
    published = [each.published for batch in (first, second, rest) if batch for each in batch.ranges]
    assert published == [100, 200, 0]


def test_traces_stay_with_their_rows() -> None:
    backlog = opened(0, 1)
    answer_all(backlog, added(backlog, 0, [Record(0), Record(1, headers=(("traceparent", TRACE),))]))
    answer_all(backlog, added(backlog, 1, [Record(0, headers=(("a", b"b"), ("traceparent", TRACE)))]))
    batch = taken(backlog)
    assert batch.traces == {1: TRACE.decode(), 2: TRACE.decode()}


@pytest.mark.parametrize(
    "header",
    [
        b"", b"00", TRACE.upper(), b"ff" + TRACE[2:], TRACE + b"-", TRACE[:3] + b"0" * 32 + TRACE[35:],
        TRACE + b"-\xff", b"01" + TRACE[2:] + b"-" + b"x" * 300, None,
    ],
)  # fmt: skip
def test_malformed_trace_is_no_trace(header: bytes | None) -> None:
    assert traceparent_of([("traceparent", header)]) is None


def test_opening_is_declared_before_any_page() -> None:
    backlog = Backlog(SOURCE)
    backlog.open(0, 3, opening=True)
    backlog.open(1, 9)
    answer_all(backlog, added(backlog, 0, records(3)))
    batch = taken(backlog)
    assert batch.ranges == [
        SourceRange("cluster", "pages", "f" * 32, 0, 3, 3, 0, opening=True),
        SourceRange("cluster", "pages", "f" * 32, 0, 3, 4, 1),
    ]
    assert batch.ends == {0: 4}


@pytest.mark.parametrize("offsets", [(), (15, 16)])
def test_loss_is_declared_before_the_pages_behind_it(offsets: tuple[int, ...]) -> None:
    backlog = Backlog(SOURCE)
    backlog.open_after_loss(0, 10, 15)
    answer_all(backlog, added(backlog, 0, records(*offsets)))
    batch = taken(backlog)
    assert batch.ranges[0] == SourceRange("cluster", "pages", "f" * 32, 0, 10, 15, 0, opening=True, lost=True)
    assert span(batch)[1:] == ([(0, 15, 17, 2)] if offsets else [])
    assert batch.ends == {0: 17 if offsets else 15}


def test_unfinished_page_holds_back_its_own_partition_only() -> None:
    backlog = opened(0, 1)
    (slow,) = added(backlog, 0, records(0, 1, 2))
    backlog.answer(slow, [row()])
    answer_all(backlog, added(backlog, 0, records(3, 4)))
    answer_all(backlog, added(backlog, 1, records(0, 1)))
    assert span(taken(backlog)) == [(0, 0, 1, 1), (1, 0, 2, 2)]
    assert backlog.take() is None
    backlog.answer(slow, [row(), row()])
    assert span(taken(backlog)) == [(0, 1, 5, 4)]


def test_rule_3_batches_keep_to_the_bounds_and_serve_every_partition() -> None:
    backlog = opened(0, 1)
    answer_all(backlog, added(backlog, 0, records(*range(10))))
    answer_all(backlog, added(backlog, 1, records(*range(10))))
    assert span(taken(backlog, rows=4)) == [(0, 0, 4, 4)]
    assert span(taken(backlog, rows=4)) == [(1, 0, 4, 4)]
    assert span(taken(backlog, rows=8)) == [(0, 4, 10, 6), (1, 4, 6, 2)]


def test_row_beyond_the_byte_bound_travels_alone() -> None:
    backlog = opened(0)
    answer_all(backlog, added(backlog, 0, records(0, 1, 2)))
    assert [len(batch.rows) for batch in iter(lambda: backlog.take(size=10), None)] == [1, 1, 1]


def test_chunks_are_bounded_by_pages_and_by_bytes() -> None:
    backlog = opened(0)
    assert [len(chunk.offsets) for chunk in added(backlog, 0, records(*range(CHUNK_PAGES + 1)))] == [64, 1]
    large = [Record(100 + n, b"x" * (CHUNK_BYTES // 2)) for n in range(3)]
    assert [len(chunk.offsets) for chunk in added(backlog, 0, [*large, Record(103, None)])] == [2, 2]
    assert [len(chunk.offsets) for chunk in added(backlog, 0, [Record(104, b"x" * 2 * CHUNK_BYTES)])] == [1]


def test_pages_join_the_chunk_that_waits_until_a_child_takes_it() -> None:
    backlog = opened(0, 1)
    (first,) = backlog.add(0, records(0))
    assert backlog.add(0, records(1, 2)) == []
    (other,) = backlog.add(1, records(0))
    backlog.begin(first)
    (second,) = backlog.add(0, records(3))
    assert [chunk.offsets for chunk in (first, second, other)] == [[0, 1, 2], [3], [0]]


def test_children_are_behind_while_more_than_a_chunk_waits() -> None:
    backlog = opened(0)
    full, rest = backlog.add(0, records(*range(CHUNK_PAGES + 1)))
    assert backlog.behind
    backlog.begin(full)
    assert not backlog.behind
    backlog.begin(rest)
    large = backlog.add(0, [Record(100 + n, b"x" * CHUNK_BYTES) for n in range(2)])
    assert backlog.behind
    backlog.begin(large[0])
    assert not backlog.behind


def test_value_is_let_go_when_its_row_is_there_unless_it_was_rejected() -> None:
    backlog = opened(0)
    (chunk,) = added(backlog, 0, [Record(0, b"x" * 100, b"k"), Record(1, b"y" * 200, b"k")])
    assert backlog.held == 2 * (RECORD_OVERHEAD + 1) + 300
    backlog.answer(chunk, [row(), row(Status.REJECTED)])
    assert backlog.held == 2 * (RECORD_OVERHEAD + 1) + 200
    batch = taken(backlog)
    (rejected,) = batch.rejected
    assert (rejected.partition, rejected.offset, rejected.value) == (0, 1, b"y" * 200)
    assert backlog.held == 2 * (RECORD_OVERHEAD + 1) + 200, "held until the batch is in the journal"
    backlog.release(batch)
    assert backlog.held == 0


def test_key_that_would_not_fit_the_journal_rejects_its_page() -> None:
    backlog = opened(0)
    answer_all(backlog, added(backlog, 0, [Record(0, b"page", b"k" * (KEY_BYTES + 1)), Record(1)]))
    batch = taken(backlog)
    assert [each.reason for each in batch.rows] == ["key_too_large", None]
    assert batch.keys == [None, b"key"]
    assert len(batch.rejected[0].key or b"") == KEY_BYTES + 1


def test_keeping_the_finished_prefix_abandons_the_rest() -> None:
    backlog = opened(0, 1)
    done, partly, behind = (added(backlog, 0, records(*pages))[0] for pages in ((0, 1), (2, 3), (4, 5)))
    (untouched,) = added(backlog, 1, records(0))
    answer_all(backlog, [done, behind])
    backlog.answer(partly, [row()])
    backlog.keep_finished()
    backlog.answer(partly, [row()])  # a child that had not heard of it
    backlog.answer(untouched, [row()])
    batch = taken(backlog)
    assert span(batch) == [(0, 0, 3, 3)]
    assert backlog.take() is None
    backlog.release(batch)
    assert backlog.held == 0


def test_dropped_partition_is_forgotten_with_its_bytes() -> None:
    backlog = Backlog(SOURCE)
    backlog.open(0, 0, opening=True)
    backlog.open(1, 0)
    (chunk,) = added(backlog, 0, records(0, 1))
    backlog.answer(chunk, [row()])
    backlog.drop(0)
    backlog.answer(chunk, [row()])
    assert backlog.take() is None
    assert backlog.held == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_covers_every_offset_once_and_returns_every_byte(seed: int) -> None:
    random_ = random.Random(seed)
    backlog = opened(0, 1, 2)
    positions = dict.fromkeys(range(3), 0)
    waiting: list[Chunk] = []
    running: list[tuple[Chunk, int]] = []
    batches: list[JournalBatch] = []

    def take() -> bool:
        batch = backlog.take(rows=random_.randint(1, 40), size=random_.randint(1, 20_000))
        if batch is not None:
            batches.append(batch)
            backlog.release(batch)
        return batch is not None

    for _ in range(300):
        event = random_.random()
        if event < 0.3:
            partition = random_.randrange(3)
            new = []
            for _ in range(random_.randint(1, 100)):
                positions[partition] += random_.choice((1, 1, 1, 5))
                new.append(Record(positions[partition], random_.randbytes(random_.randint(0, 300))))
            waiting += backlog.add(partition, new)
        elif event < 0.45 and waiting:
            chunk = waiting.pop(0)
            backlog.begin(chunk)
            running.append((chunk, len(chunk.offsets)))
        elif event < 0.7 and running:
            place = random_.randrange(len(running))
            chunk, left = running[place]
            count = random_.randint(1, left)
            backlog.answer(chunk, [row(random_.choice(list(Status))) for _ in range(count)])
            running[place] = (chunk, left - count)
            if left == count:
                del running[place]
        else:
            take()
    for chunk in waiting:
        backlog.begin(chunk)
        running.append((chunk, len(chunk.offsets)))
    for chunk, left in running:
        backlog.answer(chunk, [row() for _ in range(left)])
    while take():
        pass
    assert backlog.held == 0
    ends = dict.fromkeys(range(3), 0)
    for batch in batches:
        assert len(batch.rows) <= APPEND_ROWS
        offsets = iter(batch.offsets)
        for each in batch.ranges:
            assert each.start == ends[each.partition]
            assert all(each.start <= next(offsets) < each.end for _ in range(each.rows))
            ends[each.partition] = each.end
        assert next(offsets, None) is None
    assert ends == {p: position + 1 if position else 0 for p, position in positions.items()}
