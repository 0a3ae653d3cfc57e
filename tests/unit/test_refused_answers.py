"""Answers of probers with a number that is out of its range: refused by name, whichever number it is, and
without effect."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from stream.errors import AnswerError, AwaitedAnswerError, RefutedAnswerError
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, Segment
from stream.judge.segments.answer_records import _Columns, _Record, encode_answer
from stream.judge.segments.possible import JournalPages, PossibleAnswers
from stream.messages.varints import encode_varints
from stream.messages.verdict_options import VerdictOptions
from stream.roles.judge.probing import Probing
from stream.roles.judge.watch import JudgeWatch
from tests.judged_crawls import SCHEME
from tests.probed_judge import Answering, drop

RECORD = "topic n.candidates partition 3 offset 7"


class Read:
    """A judge that reads answers from a topic."""

    def __init__(self, directory: Path) -> None:
        self.given = given = Answering(directory)
        given.announce()
        self.unknown = list[str]()
        """Records that were said to be of unknown segments."""

        async def bounds() -> tuple[int, int]:
            return 0, given.run.end

        journal: Any = SimpleNamespace(topic="n.journal", end=0, bounds=bounds)
        self.watch = JudgeWatch()
        self.probing = Probing(given.probed, journal, self.watch)

    async def read(self, value: bytes) -> list[str]:
        """Read a record, and get to the journal record that it is about. Returns what was refused."""

        async def records() -> AsyncIterator[Any]:
            yield SimpleNamespace(topic="n.candidates", partition=3, offset=7, value=value)

        with capture_logs() as logged:
            await self.probing._read_answers(records())  # type: ignore[arg-type]
            self.probing.split([self.given.last])
        self.unknown += [each["record"] for each in logged if each["event"] == "answer_unknown"]
        return [str(each["message"]) for each in logged if each["event"] == "answer_refused"]

    def count(self, outcome: str) -> float:
        return float(self.watch.metrics.answers.labels(outcome)._value.get())


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Read]:
    made = Read(tmp_path / "judge")
    yield made
    made.given.judge.state.close()


def record_of(given: Answering) -> dict[str, Any]:
    """A record that is right, as it can be changed: two candidates of a page, and the anchors in a bucket."""
    answer = dataclasses.replace(given.answer(2), counts=given.counting(3, 2).counts)
    record: dict[str, Any] = msgspec.msgpack.decode(encode_answer(given.sent(answer=answer)))
    return record


def varints(*numbers: int) -> bytes:
    return encode_varints(np.array(numbers, np.int64))


Change = Callable[[Answering], Any]
SIZE = 64
BEYOND: dict[str, tuple[Change, str]] = {
    "version": (lambda _: 2, "has version 2, but this program reads version 1"),
    "journal": (lambda _: "0" * 32, "is an answer of journal 0{32}, not "),
    "scheme": (lambda _: "0" * 16, "is an answer of scheme 0{16}, not "),
    "group": (lambda _: "B", r"at `\$.group`"),
    "holder": (lambda _: "", r"at `\$.holder`"),
    "digest": (lambda _: bytes(16), "by prober-a, of a file 0{32} that was not announced"),
    "segment": (lambda _: [5, 5], r"is of anchors \[5, 5\), which no segment has"),
    "run": (lambda given: [given.run.start, given.run.end + 1], r"but topic n.journal ends at \d+$"),
    "most": (lambda _: 3, "lists at most 3 candidates of a page, but a judge selects 4"),
    "records": (lambda _: varints(1), "names a page beyond journal records"),
    "indexes": (
        lambda given: varints(len(given.last.rows)),
        r"names page \d+.\d+, which is beyond its",
    ),
    "pairs": (lambda _: varints(3), "has 2 anchors instead of 3"),
    "counts": (lambda _: varints(2), "has 1 buckets instead of 2"),
    "cut": (lambda _: b"\x80", "is cut for page .*, but does not list 9"),
    "anchors": (lambda _: varints(0, SIZE - 1), f"anchors are not below {SIZE}"),
    "distances": (lambda _: b"\x00\x15", r"page .* and anchor \d+, which are similar, have the distance 21"),
    "ranks": (lambda _: b"\x00\xff", r"page .* and anchor \d+, which are similar, have the rank 255"),
    "similarities": (lambda _: varints(1, 10_002), "similarities are up to 10002, of at most 10001"),
    "similar": (lambda _: b"\x80", r"which are not similar, have the similarity 10000"),
    "buckets": (lambda _: varints(40), "counts anchors in bucket 40, which no page has"),
    "sizes": (lambda _: varints(SIZE), f"sizes are up to {SIZE}, of at most {SIZE - 1}"),
}
"""What is out of its range in each field, and what is said of it."""


def changed(record: dict[str, Any], field: str, value: object) -> bytes:
    """The record with another field or column."""
    columns = list(record["columns"])
    if field in COLUMNS:
        columns[COLUMNS.index(field)] = value
        field, value = "columns", columns
    return msgspec.msgpack.encode(record | {field: value})


COLUMNS = _Columns.__struct_fields__


def test_each_field_is_tried() -> None:
    others = {"columns", "decided"}  # see test_an_answer_of_a_later_decision
    assert {*BEYOND} == {*_Record.__struct_fields__, *COLUMNS} - others


@pytest.mark.parametrize("field", BEYOND)
async def test_a_number_beyond_its_range_is_refused_by_name(judge: Read, field: str) -> None:
    given, (change, message) = judge.given, BEYOND[field]
    record = record_of(given)
    [refusal] = await judge.read(changed(record, field, change(given)))
    assert re.match(rf"{RECORD}: .*{message}|{RECORD} {message}", refusal), refusal
    assert judge.count("refused") == 1
    drop(given.probed, given.segment)
    assert given.probed.awaited(given.run.start) is not None
    assert judge.probing.split([given.last]) == ([], [given.last])
    assert await judge.read(msgspec.msgpack.encode(record)) == []
    assert judge.probing.split([given.last]) == ([given.last], [])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda given: given.answer(10),
            r"lists 10 candidates of page \d+.\d+, of at most 9; prober-a of",
        ),
        (lambda given: listing(given, similarity=-1), "which are similar, have the similarity -1"),
        (lambda given: listing(given, similarity=4000), "which are similar, have the similarity 4000"),
        (lambda given: listing(given, distance=9, rank=8), "have the rank 8"),
    ],
)
async def test_numbers_that_do_not_go_together_are_refused(
    judge: Read, answer: Callable[[Answering], Answer], message: str
) -> None:
    [refusal] = await judge.read(encode_answer(judge.given.sent(answer=answer(judge.given))))
    assert re.search(message, refusal), refusal


def listing(given: Answering, **columns: int) -> Answer:
    answer = given.answer()
    pairs = answer.pairs._replace(**{name: np.full(1, value) for name, value in columns.items()})
    return dataclasses.replace(answer, pairs=pairs)


async def test_a_page_without_a_fingerprint_is_refused(judge: Read) -> None:
    given = judge.given
    status = given.last.rows.status.copy()
    status[given.page - given.run.first] = Status.INSUFFICIENT
    given.last = dataclasses.replace(given.last, rows=dataclasses.replace(given.last.rows, status=status))
    [refusal] = await judge.read(msgspec.msgpack.encode(record_of(given)))
    assert re.search(r"names page \d+.\d+, which has no fingerprint", refusal), refusal


def test_nothing_is_counted_or_estimated_in_strict_mode(judge: Read) -> None:
    possible = PossibleAnswers(Rule(VerdictOptions.paper(), SCHEME))
    right = dataclasses.replace(listing(judge.given, similarity=-1, distance=3, rank=3), most=sys.maxsize)
    possible.refuse_others(right)
    for name, value, message in (
        ("similarity", 10_000, "have the similarity 10000"),
        ("rank", 4, "have the rank 4"),
        ("similar", False, "not similar, have the similarity -1"),
    ):
        pairs = right.pairs._replace(**{name: np.array([value])})
        with pytest.raises(AnswerError, match=message):
            possible.refuse_others(dataclasses.replace(right, pairs=pairs))
    with pytest.raises(AnswerError, match="in bucket 0, which no page has"):
        possible.refuse_others(dataclasses.replace(right, counts=judge.given.counting(0, 1).counts))


def test_a_distance_that_is_near_for_short_pages_alone_is_refused_of_others(judge: Read) -> None:
    given, answer = judge.given, listing(judge.given, distance=20, rank=20)
    rule = Rule(VerdictOptions(short_distance=20), Scheme(sketch_bins=192, short_tokens=50))
    for status in (Status.SHORT, Status.READY):
        of_all = np.full_like(given.last.rows.status, status)
        entry = dataclasses.replace(given.last, rows=dataclasses.replace(given.last.rows, status=of_all))
        met = JournalPages([entry], rule)
        if status == Status.SHORT:
            met.refuse_others(answer, given.run.first, given.run.until)
            continue
        with pytest.raises(AnswerError, match="have the distance 20"):
            met.refuse_others(answer, given.run.first, given.run.until)
        met.refuse_others(answer, given.run.first, given.page)  # about the pages before it


async def test_a_count_that_deaths_contradict_is_refused_when_it_is_met(judge: Read) -> None:
    given = judge.given
    given.judge.candidates = given.probed.search
    drop(given.probed, given.segment)
    rows, state = given.last.rows, given.judge.state
    own = [
        given.page - given.run.first
    ] * 2  # as if two anchors that were in all buckets of the page had died
    words = given.judge.rule.table_words(rows.fingerprint[own], rows.sketch[own])
    assert state.deaths is not None
    state.deaths.note(given.alive[[0, 0]], words, np.zeros(2, np.uint64))
    state.deaths.reach(2)
    assert await judge.read(encode_answer(given.sent(answer=given.counting(3, 1)))) == []
    with pytest.raises(RefutedAnswerError, match="counts fewer anchors in a bucket") as refuted:
        given.judge.decide([given.last])
    with capture_logs() as logged:
        judge.probing.refuse(refuted.value)
    assert str(logged[0]["message"]).startswith(f"{RECORD}: the answer of anchors")
    assert str(logged[0]["message"]).endswith("; prober-a of group without a name sent it")
    with pytest.raises(AwaitedAnswerError):
        given.judge.decide([given.last])
    assert await judge.read(encode_answer(given.sent(answer=given.counting(3, 2)))) == []
    assert given.judge.decide([given.last]).entries == [given.last]


async def test_answers_of_a_segment_that_is_not_announced_are_named_once(judge: Read) -> None:
    given = judge.given
    other = dataclasses.replace(given.answer(), segment=Segment(given.segment.first, given.segment.end + 1))
    for _ in range(2):
        assert await judge.read(encode_answer(given.sent(answer=other))) == []
    assert judge.count("unknown") == 2
    assert judge.unknown == [RECORD]


async def test_an_answer_of_a_later_decision_never_counts_and_is_named_in_the_end(judge: Read) -> None:
    given = judge.given
    assert await judge.read(changed(record_of(given), "decided", 1 << 60)) == []
    drop(given.probed, given.segment)
    assert judge.probing.split([given.last]) == ([], [given.last])
    assert await judge.read(msgspec.msgpack.encode(record_of(given))) == []
    decided = given.judge.decide([given.last])
    given.judge.apply(decided.entries, decided.record(), 2)
    with capture_logs() as logged:
        judge.probing.attend()
    assert [each["event"] for each in logged] == ["answer_refused"]
    assert re.match(
        rf"{RECORD}: .* is as of decision {1 << 60}, which is not before", str(logged[0]["message"])
    )
    assert judge.count("refused") == 1
