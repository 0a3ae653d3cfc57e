"""What a judge knows of segments: which answers are compared or let go, and when tables are dropped."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from stream.errors import AnswerError, RecordError, RefutedAnswerError, StateError
from stream.judge.ids import INDEX_BITS
from stream.judge.judge import Judge
from stream.judge.segments import probed as probed_module
from stream.judge.segments.answer import ListedPairs, Run
from stream.judge.segments.merged_search import Answers
from stream.judge.segments.probed import ProbedSegments, _ByPages, _Received
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.state import State
from stream.kafka.reader import JournalReader
from stream.roles.judge.probing import Probing
from stream.roles.judge.watch import JudgeWatch
from stream.tables.store import anchors
from tests.probed_judge import Answering, drop


@pytest.fixture(autouse=True)
def tables_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at a whole chunk of the anchor log."""
    monkeypatch.setattr(anchors, "CHUNK", 1)


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Answering]:
    made = Answering(tmp_path / "judge")
    made.announce()
    yield made
    made.judge.state.close()


def test_holders_of_either_file_answer_for_a_range_that_was_exported_twice(given: Answering) -> None:
    other, third = "cd" * 32, bytes.fromhex("ef" * 16)
    given.probed.announce(msgspec.structs.replace(given.announcements[0], digest=other), "record")
    assert given.probed.add(given.sent(), "record")
    assert given.probed.add(given.sent("b")._replace(digest=bytes.fromhex(other)[:16]), "record")
    with pytest.raises(RecordError, match=r"of a file efef.* that was not announced"):
        given.probed.add(given.sent("c")._replace(digest=third), "record")
    assert given.probed.due() == given.segment


def test_tables_are_dropped_once_enough_groups_answer(given: Answering) -> None:
    offset = given.run.start
    for sent in (given.sent(), given.sent()._replace(holder="other")):
        assert given.probed.add(sent, "record")
        assert given.probed.due() is None  # of one group
    given.probed.add(given.sent("b"), "record")
    given.probed.attend()
    assert given.probed.due() == given.segment
    assert (given.probed.held, given.probed.dropped) == (len(given.announcements), 0)
    assert given.probed.awaited(offset) is None
    drop(given.probed, given.segment)
    assert given.judge.state.tables.held == given.segment.end
    assert given.probed.dropped == 1
    assert given.probed.due() is None
    assert given.probed.awaited(offset) is None
    assert given.probed.awaited(offset + 1) == (given.segment, offset + 1, "prober-b")
    given.judge.state.close()
    state, _ = given.open()
    given.judge = Judge(state, given.genesis)
    probed = ProbedSegments(state, given.judge.rule, given.genesis, 2)
    with pytest.raises(StateError, match=r"no tables of anchors \[0, 64\).*--take-back all"):
        probed.need_dropped()
    probed.announce(given.announcements[0], "record")
    probed.need_dropped()
    assert probed.awaited(offset) == (given.segment, offset, "")


def test_tables_are_dropped_though_a_judge_decides_before_answers_come(given: Answering) -> None:
    """At a moderate rate, one with all tables is always faster than its probers."""
    last = Run(given.run.start - 1, given.run.start)
    assert given.judge.state.meta.applied == last.end
    for group, run, due in (
        ("", last, None),
        ("b", Run(last.start - 1, last.start), None),  # it is behind
        ("b", last, given.segment),
    ):
        answer = replace(given.answer(), run=run, pairs=ListedPairs._make(np.zeros((6, 0), np.int64)))
        assert given.probed.add(given.sent(group, answer), "record")
        given.probed.attend()
        assert given.probed.due() == due
    drop(given.probed, given.segment)
    assert given.probed.due() is None


@pytest.mark.parametrize(("owner", "method"), [(State, "hold_from"), (Answers, "replace")])
async def test_an_answer_that_comes_while_tables_are_dropped_counts(
    given: Answering, owner: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what drops them is in a thread, here it stands still until the event loop has added one."""
    in_thread, added, original = asyncio.Event(), threading.Event(), getattr(owner, method)
    loop = asyncio.get_running_loop()

    def paused(*arguments: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            loop.call_soon_threadsafe(in_thread.set)
            added.wait()
        original(*arguments)

    monkeypatch.setattr(owner, method, paused)
    given.probed.add(given.sent(), "record")
    reader = cast(JournalReader, None)  # as nothing is read
    dropping = asyncio.create_task(Probing(given.probed, reader, JudgeWatch()).drop(given.segment))
    dropping.add_done_callback(lambda _: in_thread.set())
    await in_thread.wait()
    following = Run(given.run.end, given.run.end + 1)
    given.probed.add(given.sent(answer=replace(given.answer(0), run=following)), "record")
    added.set()
    await dropping
    assert given.judge.state.tables.held == given.segment.end
    assert given.probed.answered_until(given.run.start, following.end) == following.end


def test_nothing_is_awaited_of_a_segment_that_a_turn_lets_expire(given: Answering) -> None:
    given.probed.attend()
    state, offset = given.judge.state, given.run.start
    drop(given.probed, given.segment)
    assert given.probed.awaited(offset) == (given.segment, offset, "")
    # No record is decided. The announcement is withdrawn, so nobody answers any more.
    writes = state.store.batch()
    state.raise_first(writes, PageNumbers(given.segment.end, 0))
    state.store.write(writes)
    given.probed.announce(given.segment.first, "record")
    given.probed.attend()
    assert given.probed.awaited(offset) is None


def test_an_answer_can_be_refused_when_its_segment_is_not_announced_any_more(given: Answering) -> None:
    given.probed.attend()
    drop(given.probed, given.segment)
    answer = given.answer()
    given.probed.add(given.sent(answer=answer), "record")
    given.probed.announce(given.segment.first, "record")
    given.probed._pruned = (-1, -1)
    given.probed.attend()
    assert given.probed.awaited(given.run.start) is None
    refused = given.probed.refuse(RefutedAnswerError("counts what cannot be", answer))
    assert str(refused) == "record: counts what cannot be; prober-a of group without a name sent it"
    assert given.probed.awaited(given.run.start) == (given.segment, given.run.start, "prober-a")


def test_an_answer_of_a_position_that_never_comes_is_let_go(given: Answering) -> None:
    answer = replace(given.answer(), decided=1 << 60)
    kept = weakref.ref(answer.cut)
    given.probed.add(given.sent(answer=answer), "record")
    given.probed.attend()
    decided = given.judge.decide(given.entries[-1:])
    given.judge.apply(decided.entries, decided.record(), 2)
    assert len(given.probed.attend()) == 1
    del answer
    assert kept() is None


def test_repeated_answers_are_let_go_while_nothing_is_decided(
    given: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probed_module, "MOST_ADDED", 5000)
    index, anchor = (each.ravel() for each in np.meshgrid(np.arange(100), np.arange(30), indexing="ij"))
    zeros = np.zeros(len(index), np.uint8)
    pairs = ListedPairs(
        given.run.first | index, anchor, zeros, zeros, zeros.astype(np.int64), zeros.astype(np.bool_)
    )
    kept = []
    for most in (40, 41, 42):
        answer = replace(given.answer(), pairs=pairs, most=most, cut=np.zeros(0, np.int64))
        kept.append(weakref.ref(answer.cut))
        given.probed.add(given.sent(answer=answer), "record")
        given.probed.attend()
    del answer
    assert [each() is not None for each in kept] == [False, False, True]


def test_another_range_in_place_of_one_whose_tables_are_dropped_is_refused(given: Answering) -> None:
    other = msgspec.structs.replace(given.announcements[0], end=given.segment.end + 1)
    given.probed.announce(other, "record")  # has all tables
    given.announce()
    with given.probed.dropping(given.segment), pytest.raises(StateError, match="in place of"):
        given.probed.announce(other, "record")
    drop(given.probed, given.segment)
    with pytest.raises(StateError, match=r"^record: .* \[0, 65\) in place of .* \[0, 64\),.*--take-back all"):
        given.probed.announce(other, "record")


def test_groups_that_differ_are_named(given: Answering) -> None:
    answer, none = given.answer(), replace(given.answer(0), decided=2)
    given.probed.add(given.sent(), "record")
    # Equal, cut, and of a position that is not reached yet.
    for other in (answer, replace(given.answer(4), most=4, cut=np.array([given.page])), none):
        given.probed.add(given.sent("b", other), "record")
        assert given.meet() == []
    tables, writes = given.judge.state.tables, given.judge.state.store.batch()
    tables.kill(writes, given.alive[:1])
    given.judge.state.store.write(writes)
    given.probed.add(given.sent("b", given.answer(0)), "record")
    assert given.meet() == []  # the anchor is dead
    pairs = answer.pairs._replace(anchor=given.alive[1:2])
    given.probed.add(given.sent("b", replace(answer, pairs=pairs)), "record")
    with pytest.raises(AnswerError, match=r"page .*: prober-b of group b has anchors \[\d+\], prober-a of"):
        given.meet()


def test_holders_that_count_differently_are_named(given: Answering) -> None:
    state, one, two = given.judge.state, given.counting(3, 1), given.counting(3, 2)
    for group in ("", "b"):
        given.probed.add(given.sent(group, one), "record")
    assert given.meet() == []
    assert state.deaths is not None
    state.deaths.note(given.alive[1:2], *state.tables.entered(given.alive[1:2]))
    state.deaths.reach(2)
    given.probed.add(given.sent("b", replace(two, decided=2)), "record")
    assert given.meet() == []  # an anchor has left buckets between the two positions
    given.probed.add(given.sent("", two)._replace(holder="late"), "record")
    with pytest.raises(
        AnswerError, match=r"late of group without .* in buckets \[\(3, 2\)\], prober-a .* \[\(3, 1\)\]"
    ):
        given.meet()


def test_answers_are_found_by_the_pages_that_they_are_about(given: Answering) -> None:
    rng, received = random.Random(1), list[_Received]()
    for _ in range(60):
        start = rng.randrange(40)
        run = Run(start, start + rng.choice((0, 1, 1, 2, 20)), 2, rng.choice((3, 5)))
        none = ListedPairs._make(np.zeros((6, 0), np.int64))
        answer = replace(given.answer(), run=run, pairs=none)
        received.append(_Received(given.sent(answer=answer), "record", 0, 0))
    found = _ByPages(received)
    for one in received:
        run = one.answer.run
        overlapping = [
            each
            for each in received
            if each.answer.run.first < run.until and run.first < each.answer.run.until
        ]
        assert found.about(run) == overlapping
    assert found.about(Run(100, 200)) == []


def test_pages_are_compared_once_their_record_is_known(given: Answering) -> None:
    """Two answers about more records than a batch has are compared batch by batch."""
    run = Run(given.run.start, given.run.end + 5)
    beyond = ListedPairs._make(each.copy() for each in given.answer().pairs)
    beyond.page[:] = run.end - 1 << INDEX_BITS
    for group, pairs in (("", beyond), ("b", given.answer(0).pairs)):
        given.probed.add(given.sent(group, replace(given.answer(), run=run, pairs=pairs)), "record")
    assert given.meet() == given.meet() == []
    later = [replace(given.last, offset=offset) for offset in range(run.start, run.end)]
    assert given.probed.meet(later[:3]) == []
    rows = replace(given.last.rows, status=np.zeros_like(given.last.rows.status))
    with pytest.raises(AnswerError, match=rf"differ about page {run.end - 1}\.0: "):
        given.probed.meet([*later[:-1], replace(later[-1], rows=rows)])
