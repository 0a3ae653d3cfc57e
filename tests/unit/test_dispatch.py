"""Dispatch to children: waiting pages are shared evenly, and none waits long behind a slow page."""

from __future__ import annotations

import asyncio

from stream.children.chunk import CHUNK_BYTES, CHUNK_PAGES
from stream.roles.worker.backlog import Backlog
from stream.roles.worker.dispatch import ChunkQueue
from tests.unit.test_backlog import Record, opened, records, row, span


def waiting(backlog: Backlog, pages: dict[int, list[Record]]) -> ChunkQueue:
    queue = ChunkQueue(backlog)
    for partition, new in pages.items():
        queue.put(backlog.add(partition, new))
    return queue


async def test_one_child_gets_what_waits_of_all_partitions() -> None:
    backlog = opened(0, 1)
    queue = waiting(backlog, {0: [Record(0, b"a")], 1: [Record(0, b"b"), Record(1, b"c")]})
    dispatch = await queue.take()
    assert dispatch.values == [b"a", b"b", b"c"]
    dispatch.answer([row(), row()])
    dispatch.answer([row()])
    assert dispatch.values == [None] * 3, "let go"
    assert span(backlog.take()) == [(0, 0, 1, 1), (1, 0, 2, 2)]


async def test_idle_children_share() -> None:
    backlog = opened(0, 1)
    queue = ChunkQueue(backlog)
    takers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.put(backlog.add(0, records(0, 1)))
    queue.put(backlog.add(1, records(0, 1)))
    assert [len((await taker).values) for taker in takers] == [2, 2]


async def test_a_dispatch_is_bounded_by_pages_and_by_bytes() -> None:
    backlog = opened(0, 1, 2)
    large = Record(0, b"x" * CHUNK_BYTES)
    queue = waiting(backlog, {0: records(*range(CHUNK_PAGES)), 1: records(0), 2: [large]})
    assert [len((await queue.take()).values) for _ in range(3)] == [CHUNK_PAGES, 1, 1]


async def test_chunks_behind_a_slow_page_go_to_another_child() -> None:
    backlog = opened(0, 1, 2)
    queue = waiting(backlog, {0: records(0, 1, 2), 1: [Record(0, b"b")], 2: [Record(0, b"c")]})
    slow = await queue.take()
    slow.answer([row()])
    assert slow.take_after_slow_page() == [], "it has answered since the last look"
    queue.put_back(slow.take_after_slow_page())
    assert slow.take_after_slow_page() == [], "told once"
    other = await queue.take()
    assert other.values == [b"b", b"c"]
    other.answer([row()])
    slow.answer([row()] * 4)
    other.answer([row()])
    assert span(backlog.take()) == [(0, 0, 3, 3), (1, 0, 1, 1), (2, 0, 1, 1)]
    assert not backlog.unanswered


async def test_a_child_that_gets_over_its_slow_page_spares_the_others_the_rest() -> None:
    backlog = opened(0, 1)
    queue = waiting(backlog, {0: records(0), 1: records(0)})
    slow = await queue.take()
    queue.put_back(slow.take_after_slow_page())
    slow.answer([row(), row()])
    queue.put(backlog.add(0, [Record(1, b"next")]))
    assert (await queue.take()).values == [b"next"]


async def test_pages_are_taken_one_by_one_where_one_of_them_may_take_the_worker_down() -> None:
    backlog = opened(0, 1)
    queue = waiting(backlog, {0: [Record(3, b"a"), Record(5, b"b")], 1: [Record(0, b"c")]})
    for offset, value in ((3, b"a"), (5, b"b")):
        one = await queue.take_one()
        assert (one.values, one.current_page, one.partitions) == ([value], (0, offset), {0})
        one.answer([row()])
        assert one.current_page == (0, offset)
    one = await queue.take_one()
    assert one.current_page == (1, 0)
    assert span(backlog.take()) == [(0, 0, 6, 2)]


async def test_what_is_left_of_a_partition_is_handed_out_together_again() -> None:
    backlog = opened(0, 1)
    queue, others = waiting(backlog, {0: records(0, 1, 2), 1: records(0)}), ChunkQueue(backlog)
    (await queue.take_one()).answer([row()])
    others.put_back(queue.remove(0))
    together = await others.take()
    assert (together.current_page, len(together.values)) == ((0, 1), 2)
    together.answer([row()] * 2)
    assert (await queue.take_one()).current_page == (1, 0)


async def test_a_dispatch_is_slow_while_nothing_is_answered_between_two_looks() -> None:
    backlog = opened(0)
    dispatch = await waiting(backlog, {0: records(0, 1)}).take()
    dispatch.answer([row()])
    dispatch.take_after_slow_page()
    assert not dispatch.slow
    dispatch.take_after_slow_page()
    assert dispatch.slow
    assert dispatch.current_page == (0, 1)
    dispatch.answer([row()])
    assert not dispatch.slow
