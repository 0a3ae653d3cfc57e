"""The schedule of probers with a judge that waits for them, on a simulated clock: answers are lost, come
late, repeatedly and in any order; judges and probers start again."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from stream.judge.ids import INDEX_BITS, pack
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.roles.prober import schedule as module
from stream.roles.prober.schedule import Reason, Schedule

SELECTED = 4
"""Candidates that the judge of this test takes for a page: the oldest that are alive."""
MOST_ENTRIES = 10
"""Pairs after which an answer of this test ends."""


@dataclass
class Crawl:
    """Journal records, with the candidates of each page in each segment."""

    rng: random.Random
    segments: list[Segment]
    rows: dict[int, int] = field(default_factory=dict)
    """Offset of a record -> rows."""
    candidates: dict[tuple[int, Segment], list[int]] = field(default_factory=dict)
    """(page, segment) -> anchors, ascending."""

    def append(self) -> None:
        rng, offset = self.rng, max(self.rows, default=0) + self.rng.choice([1, 1, 1, 2])
        self.rows[offset] = rng.choice([0, 1, 1, 2, 5])
        for page in self.pages(Run(offset, offset + 1)):
            for segment in self.segments:
                count = rng.choice([0, 0, 1, 3, 6, 20])
                self.candidates[page, segment] = sorted(rng.sample(range(*segment), count))

    def pages(self, run: Run) -> Iterator[int]:
        for offset in sorted(self.rows):
            for page in (pack(offset, index) for index in range(self.rows[offset])):
                if run.first <= page < run.until:
                    yield page


class Prober:
    """A prober with some segments, which answers by the definition."""

    def __init__(self, crawl: Crawl, deaths: list[set[int]], judged: int) -> None:
        self.crawl, self.deaths = crawl, deaths
        self.schedule = Schedule(judged, SELECTED)
        self.applied = len(deaths)
        self.read = 0
        self.reasons = Counter[Reason]()
        self.ended_early = Counter[tuple[Reason, bool]]()
        """Answers that ended before their task, by its reason and whether within a record."""

    def follow(self, ends: list[int], now: float, most: int) -> None:
        """Apply at most so many further decisions."""
        for at in range(self.applied, min(self.applied + most, len(self.deaths))):
            for segment in self.schedule.segments:
                dead = sorted(each for each in self.deaths[at] if segment.first <= each < segment.end)
                self.schedule.note_deaths(segment, np.array(dead, np.int64), now)
            self.schedule.note_decided(ends[at], now)
            self.applied = at + 1
        for offset in sorted(self.crawl.rows):
            if offset >= self.read and self.schedule.room > 0:
                self.schedule.note_read(offset, self.crawl.rows[offset])
                self.read = offset + 1

    def answers(self, now: float) -> Iterator[Answer]:
        gone = set[int]().union(*self.deaths[: self.applied])
        for task in self.schedule.take(now, 2):
            self.reasons[task.reason] += 1
            run, listed, cut = task.run, list[tuple[int, int]](), list[int]()
            for page in self.crawl.pages(run):
                alive = [each for each in self.crawl.candidates[page, task.segment] if each not in gone]
                if len(listed) >= MOST_ENTRIES:
                    run = Run.between(run.first, page)
                    self.ended_early[task.reason, run.end_row > 0] += 1
                    break
                listed += [(page, each) for each in alive[: task.most]]
                cut += [page] * (len(alive) > task.most)
            pages, anchors = np.array(listed, np.int64).reshape(-1, 2).T
            zeros = np.zeros(len(pages), np.uint8)
            pairs = ListedPairs(pages, anchors, zeros, zeros, zeros.astype(np.int64), zeros.astype(np.bool_))
            answer = Answer(
                task.segment,
                run,
                self.applied,
                task.most,
                pairs,
                np.array(cut, np.int64),
                BucketCounts.none(),
            )
            self.schedule.note_answered(answer, now)
            yield answer


class Judge:
    """Decides a record once it has answers of all segments that suffice. Each record kills some anchors."""

    def __init__(self, crawl: Crawl) -> None:
        self.crawl, self.received = crawl, list[Answer]()
        self.deaths, self.ends = list[set[int]](), list[int]()
        self.known = 0
        """Answers as of earlier decisions do not count."""

    @property
    def judged(self) -> int:
        return self.ends[-1] if self.ends else 0

    def decide(self) -> bool:
        """Decide the next record, if its answers suffice: its candidates are those of the definition."""
        offset = min((each for each in self.crawl.rows if each >= self.judged), default=None)
        if offset is None:
            return False
        gone = set[int]().union(*self.deaths)
        before, rng = set(gone), random.Random(offset)
        for page in self.crawl.pages(Run(offset, offset + 1)):
            for segment in self.crawl.segments:
                usable = [
                    each
                    for each in self.received
                    if each.segment == segment
                    and each.decided >= self.known
                    and each.run.has(np.array([page]))
                ]
                if not usable:
                    return False
                newest = max(usable, key=lambda each: (each.decided, each.most))
                listed = newest.pairs.anchor[newest.pairs.page == page].tolist()
                alive = [each for each in listed if each not in gone][:SELECTED]
                if page in newest.cut and len(alive) < SELECTED:
                    return False
                want = [each for each in self.crawl.candidates[page, segment] if each not in gone]
                assert alive == want[:SELECTED]
            # It supersedes one, the first candidate of some page of the record, maybe the next one's.
            other = rng.choice(list(self.crawl.pages(Run(offset, offset + 1))))
            near = self.crawl.candidates[other, rng.choice(self.crawl.segments)]
            gone.update([each for each in near if each not in gone][:1])
        every = [each for segment in self.crawl.segments for each in range(*segment)]
        gone.update(self.crawl.rng.sample(every, self.crawl.rng.choice([0, 0, 1, 3])))
        self.deaths.append(gone - before)
        self.ends.append(offset + 1)
        self.received = [each for each in self.received if not each.run.is_before(self.judged)]
        return True


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_decided_whatever_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(module, "RUN_ROWS", rng.choice([6, 12]))
    monkeypatch.setattr(module, "AHEAD_ROWS", 25)
    monkeypatch.setattr(module, "AHEAD_ENTRIES", 40)
    cuts = sorted(rng.sample(range(1, 120), rng.randint(0, 3)))
    segments = [Segment(*each) for each in zip([0, *cuts], [*cuts, 120], strict=True)]
    segments = [each for each in segments if each.end - each.first >= 20] or [Segment(0, 120)]
    crawl, reasons, ended = Crawl(rng, segments), Counter[Reason](), Counter[tuple[Reason, bool]]()
    judge = Judge(crawl)

    def probers() -> list[Prober]:
        """One or two that share the segments."""
        some = [Prober(crawl, judge.deaths, judge.judged) for _ in range(rng.randint(1, 2))]
        for segment in segments:
            rng.choice(some).schedule.hold(segment)
        return some

    def count(members: list[Prober]) -> None:
        for each in members:
            reasons.update(each.reasons)
            ended.update(each.ended_early)

    members, now, late = probers(), 0.0, list[Answer]()
    for _ in range(60):
        crawl.append()
    while judge.judged <= max(crawl.rows):
        now += rng.choice([0.01, 0.5, 4.0])
        assert now < 10_000, (judge.judged, reasons)
        if rng.random() < 0.02:  # who takes over has the segments of all
            count(members)
            members = probers()
        if rng.random() < 0.02:  # another judge leads, which knows no answer, and no earlier death
            judge.received, judge.known = [], len(judge.deaths)
            for each in members:
                each.schedule.note_asked_again()
        for member in members:
            member.follow(judge.ends, now, rng.randint(0, 2))
            assert member.schedule.room > -6
            late += [each for each in member.answers(now) if rng.random() > 0.1]
        rng.shuffle(late)
        arrived, late = late[: len(late) // 2 + 1], late[len(late) // 2 + 1 :]
        judge.received += arrived + rng.sample(arrived, len(arrived) // 3)
        judge.decide()
    count(members)
    assert reasons[Reason.REPEATED], reasons
    for reason in (Reason.NEW, Reason.REPEATED):
        assert any(ended[reason, within] for within in (False, True)), ended


def records_of(schedule: Schedule, count: int, rows: int = 1) -> None:
    for offset in range(count):
        schedule.note_read(offset, rows)


def answer_of(segment: Segment, run: Run, most: int, cut: list[tuple[int, list[int]]]) -> Answer:
    """An answer with cut lists: (page, anchors)."""
    listed = [(page, anchor) for page, anchors in cut for anchor in anchors]
    pages, anchors = np.array(listed, np.int64).reshape(-1, 2).T
    zeros = np.zeros(len(pages), np.uint8)
    pairs = ListedPairs(pages, anchors, zeros, zeros, zeros.astype(np.int64), zeros.astype(np.bool_))
    some = np.array([page for page, _ in cut], np.int64)
    return Answer(segment, run, 1, most, pairs, some, BucketCounts.none())


ONE, TWO = Segment(0, 10), Segment(10, 20)


def test_first_records_come_first_over_all_segments() -> None:
    schedule = Schedule(0, SELECTED)
    records_of(schedule, 10, rows=module.RUN_ROWS)
    schedule.hold(ONE)
    assert [task.run for task in schedule.take(0.0, 4)] == [Run(0, 1)]
    schedule.hold(TWO)
    assert [(task.segment, task.run) for task in schedule.take(0.0, 4)] == [
        (TWO, Run(0, 1)),
        (ONE, Run(1, 2)),
    ]


def test_runs_are_of_whole_records_and_bounded() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    for offset, rows in enumerate([4000, 97, 1, 5000, 0, 0, 3]):
        schedule.note_read(2 * offset, rows)
    runs = []
    while tasks := schedule.take(0.0, 1):
        runs.append(tasks[0].run[:2])
    assert runs == [(0, 1), (2, 5), (6, 7), (8, 13)]


def test_reading_ahead_is_bounded_and_goes_on_with_decisions() -> None:
    schedule = Schedule(0, SELECTED)
    records_of(schedule, 8, rows=module.AHEAD_ROWS // 4)
    assert schedule.room < 0
    schedule.note_decided(8, 0.0)
    assert schedule.room == module.AHEAD_ROWS
    assert not schedule.note_read(7, 1)
    for offset in range(8, 8 + module.AHEAD_ROWS):
        schedule.note_read(offset, 0)  # take memory as well
    assert schedule.room == 0


def test_what_is_answered_ahead_is_bounded_by_its_size_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a flood of pages that are alike fills the memory of a judge that waits for another segment."""
    monkeypatch.setattr(module, "RUN_ROWS", 1)
    monkeypatch.setattr(module, "AHEAD_ENTRIES", 4)
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    schedule.hold(TWO)
    records_of(schedule, 6)

    def answered(now: float) -> list[tuple[Segment, int, Reason]]:
        seen = []
        while tasks := schedule.take(now, 1):
            ((segment, run, _, reason),) = tasks
            cut = [(pack(run.start, 0), [segment.first, segment.first + 1])]  # two pairs a record
            schedule.note_answered(answer_of(segment, run, 2, cut if segment == ONE else []), now)
            seen.append((segment, run.start, reason))
        return seen

    of_two = [(TWO, offset) for offset in range(6)]
    first = answered(0.0)
    assert sorted(each[:2] for each in first) == [(ONE, 0), (ONE, 1), *of_two]
    assert schedule.behind == 0  # it does what it can
    schedule.note_deaths(ONE, np.array([0]), 0.0)
    assert answered(0.1) == [(ONE, 0, Reason.DEATHS), (ONE, 1, Reason.DEATHS)]
    # Decisions stand still: the same again.
    again = answered(6.0)
    assert sorted(each[:2] for each in again) == sorted(each[:2] for each in first)
    assert {reason for *_, reason in again} == {Reason.REPEATED}
    schedule.note_decided(1, 7.0)
    assert answered(7.0) == [(ONE, 2, Reason.NEW)]


def test_what_an_answer_leaves_of_its_task_is_answered_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the end of the first record even if much is answered, or that would never be decided."""
    monkeypatch.setattr(module, "AHEAD_ENTRIES", 2)
    schedule = Schedule(0, 1)
    schedule.hold(ONE)
    records_of(schedule, 3, rows=3)
    whole = Run(0, 3)

    def answered(until: int, reason: Reason) -> Run:
        """Answer a task up to a page, with a cut list for the one before it, which has an anchor of its
        own."""
        [task] = schedule.take(0.0, 1)
        assert task.reason == reason
        offset, row = divmod(until - 1, 1 << INDEX_BITS)
        cut = [(pack(offset, min(row, 2)), [3 * offset + min(row, 2)])]
        schedule.note_answered(answer_of(ONE, Run.between(task.run.first, until), 1, cut), 0.0)
        return task.run

    first = [pack(0, 1), pack(0, 2), pack(1, 1)]
    assert [answered(each, Reason.NEW) for each in first] == [
        Run.between(each, whole.until) for each in (0, *first[:2])
    ]
    assert not schedule.take(0.0, 1), "the first record is answered, with more than enough"
    # All cut lists of a record count, of whichever answers; of a page that of the last one.
    schedule.note_deaths(ONE, np.array([4]), 0.0)
    assert not schedule.take(0.0, 1)
    for at, dead in enumerate([0, 2]):
        schedule.note_deaths(ONE, np.array([dead]), 0.0)
        assert answered(pack(0, 1 + at), Reason.DEATHS) == Run(0, 1)
        assert answered(pack(1, 0), Reason.DEATHS) == Run.between(pack(0, 1 + at), pack(1, 0))
    schedule.note_deaths(ONE, np.array([3]), 0.0)
    assert answered(pack(1, 1), Reason.DEATHS) == Run(1, 1, 0, 1), "not beyond what was answered"
    schedule.note_decided(1, 0.0)
    assert answered(pack(2, 0), Reason.NEW) == Run.between(first[-1], whole.until)
    schedule.note_decided(2, 0.0)
    assert answered(whole.until, Reason.NEW) == Run(2, 3)
    assert not schedule.take(0.0, 1)


def test_only_records_with_a_dead_anchor_in_a_cut_list_are_answered_again() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    schedule.hold(TWO)
    records_of(schedule, 6)
    run = schedule.take(0.0, 2)[0].run
    cut = [(pack(offset, 0), [offset, offset + 1]) for offset in (1, 2, 4)]
    schedule.note_answered(answer_of(ONE, run, 2, cut), 0.0)
    schedule.note_deaths(ONE, np.array([9]), 0.0)
    assert not schedule.take(0.0, 2)
    schedule.note_deaths(TWO, np.array([2]), 0.0)
    assert not schedule.take(0.0, 2)
    schedule.note_deaths(ONE, np.array([2, 5]), 0.0)
    runs = []
    while tasks := schedule.take(0.0, 2):
        assert tasks[0].reason == Reason.DEATHS
        runs.append(tasks[0].run)
    assert runs == [Run(1, 3), Run(4, 5)]
    schedule.note_answered(answer_of(ONE, runs[0], 2, [(pack(1, 0), [1, 3])]), 0.0)
    schedule.note_decided(2, 0.0)
    schedule.note_deaths(ONE, np.array([1, 3]), 0.0)
    assert not schedule.take(0.0, 2)


def test_what_is_not_decided_is_repeated_with_doubled_lists_at_growing_intervals() -> None:
    schedule = Schedule(0, 8)
    schedule.hold(ONE)
    assert schedule.wait(0.0) is None
    for offset in range(3):
        schedule.note_read(offset, 1, 300)
    now, seen = 100.0, []
    for _ in range(400):
        for task in schedule.take(now, 1):
            seen.append((now - 100, task.run, task.most, task.reason))
            schedule.note_answered(answer_of(ONE, task.run, task.most, []), now)
        if now == 105:
            schedule.note_decided(1, now)  # so the patience begins anew
        now += 1
    every, rest = Run(0, 3), Run(1, 3)
    assert seen[:2] == [(0, every, 9, Reason.NEW), (5, every, 18, Reason.REPEATED)]
    assert seen[2:7] == [
        (after, rest, most, Reason.REPEATED)
        for after, most in ((10, 36), (20, 72), (40, 144), (80, 288), (140, 308))
    ]
    assert [most for _, _, most, _ in seen[7:]] == [308] * (len(seen) - 7)
    assert np.diff([after for after, *_ in seen[7:]]).tolist() == [60] * (len(seen) - 8)
    schedule.note_decided(3, now)
    assert schedule.wait(now) is None


def test_a_list_that_is_cut_is_longer_soon_if_decisions_stand_still() -> None:
    schedule = Schedule(0, 2)
    schedule.hold(ONE)
    records_of(schedule, 2)

    def answered(now: float, *offsets: int) -> float | None:
        """Answer, with lists that are cut for these records. Returns for how long nothing is due then."""
        for task in schedule.take(now, 1):
            cut = [(pack(offset, 0), [*range(task.most)]) for offset in offsets]
            schedule.note_answered(answer_of(ONE, task.run, task.most, cut), now)
        return schedule.wait(now)

    soon = module.STILL_SECONDS / module.CUT_SHARE
    assert answered(0.0, 0, 1) == soon
    assert answered(soon, 0, 1) == 2 * soon
    assert answered(3 * soon, 1) == 4 * module.STILL_SECONDS, "the first one is whole"
    schedule.note_decided(1, 4 * soon)
    assert schedule.wait(4 * soon) == soon


@pytest.mark.parametrize("selected", [4, 65, 2000])
def test_lists_become_as_long_as_a_record_can_need(selected: int) -> None:
    # All of its pages but the last supersede anchors that are near the last one.
    schedule, rows = Schedule(0, selected), 512
    schedule.hold(ONE)
    schedule.note_read(0, 1, rows)
    schedule.note_read(1, 1)
    most, now = [], 0.0
    while now < 600:
        for task in schedule.take(now, 1):
            schedule.note_answered(answer_of(ONE, task.run, task.most, []), now)
            most.append(task.most)
        now += 1
    assert most[-1] - (rows - 1) > selected
    assert most[-1] <= max(schedule.shortest, selected + rows)
    # What was too short once is so for the next record, too; but not for ever.
    schedule.note_decided(1, now)
    schedule.note_read(2, 1, rows)
    assert schedule.take(now, 1)[0] == (ONE, Run(2, 3), most[-1], Reason.NEW)
    schedule.note_decided(2, now + module.LONGEST_STILL_SECONDS)
    schedule.note_read(3, 1, rows)
    assert schedule.take(now + module.LONGEST_STILL_SECONDS, 1)[0].most == schedule.shortest


def test_records_that_keep_coming_do_not_put_off_repetitions() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    seen = []
    for second in range(12):
        schedule.note_read(second, 1)
        for task in schedule.take(float(second), 1):
            seen.append((second, task.run.start))
            schedule.note_answered(answer_of(ONE, task.run, task.most, []), float(second))
    assert seen[:6] == [(second, second) for second in range(5)] + [(5, 0)]


def test_a_judge_that_begins_to_lead_gets_all_answers_again() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    schedule.note_asked_again()
    assert not schedule.take(0.0, 1)
    records_of(schedule, 3)
    first = schedule.take(0.0, 1)
    schedule.note_answered(answer_of(ONE, first[0].run, first[0].most, []), 0.0)
    schedule.note_asked_again()
    again = schedule.take(1.0, 1)
    assert again == [first[0]._replace(reason=Reason.REPEATED)]
    assert schedule.wait(1.0) == module.STILL_SECONDS


def test_a_segment_that_is_released_is_answered_no_more() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(ONE)
    records_of(schedule, 3)
    task = schedule.take(0.0, 1)[0]
    schedule.release(ONE)
    schedule.note_answered(answer_of(ONE, task.run, 2, [(1 << INDEX_BITS, [1, 2])]), 0.0)
    schedule.note_deaths(ONE, np.array([1]), 0.0)
    assert not schedule.take(0.0, 1)
    assert schedule.wait(0.0) is None
    schedule.hold(ONE)  # again, and has to answer all
    assert schedule.take(0.0, 1)[0].run == Run(0, 3)


def test_strict_lists_are_never_cut() -> None:
    schedule = Schedule(0, sys.maxsize)
    schedule.hold(ONE)
    records_of(schedule, 1)
    assert schedule.take(0.0, 1)[0].most == sys.maxsize


LARGE = Segment(0, 10_000)


def answer_by_page(schedule: Schedule, rows: int, now: float = 0.0, step: float = 0.0) -> list[int]:
    """Answer the first record, each page by an answer of its own, with a cut list of its own. Returns how
    long the lists are."""
    lengths = []
    for row in range(rows):
        [task] = schedule.take(now, 1)
        lengths.append(task.most)
        until = task.run.first + 1 if row < rows - 1 else task.run.until
        cut = [(task.run.first, list(range(100 * row, 100 * row + task.most)))]
        schedule.note_answered(answer_of(LARGE, Run.between(task.run.first, until), task.most, cut), now)
        now += step
    return lengths


def test_the_lists_of_a_page_are_those_of_its_last_answer() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(LARGE)
    records_of(schedule, 1, rows=6)
    answer_by_page(schedule, 6)
    for _ in range(3):
        schedule.note_asked_again()
        answer_by_page(schedule, 6)
        [lists] = [held.cut[0] for held in schedule._held.values()]
        assert lists.sizes().tolist() == [SELECTED] * 6
    schedule.note_deaths(LARGE, np.array([200]), 0.0)
    assert [task.reason for task in schedule.take(0.0, 1)] == [Reason.DEATHS]


def test_decisions_do_not_stand_still_while_the_first_record_is_answered() -> None:
    schedule = Schedule(0, SELECTED)
    schedule.hold(LARGE)
    records_of(schedule, 1, rows=6)
    answer_by_page(schedule, 6, step=0.4)
    assert not schedule.take(2.4, 1)
    assert schedule.take(2.6, 1)[0].reason == Reason.REPEATED, "half a second after it was answered"


def test_lists_become_shorter_again_although_anchors_die() -> None:
    schedule = Schedule(0, 64)
    schedule.hold(LARGE)
    records_of(schedule, 400, rows=16)
    schedule.note_read(400, 1000)
    schedule._lengthen(1000, 0.0)
    for decided in range(1, 200):
        now = decided * 0.4  # sooner than answers are repeated
        while tasks := schedule.take(now, 1):
            cut = [(tasks[0].run.first, list(range(tasks[0].most)))]
            schedule.note_answered(answer_of(LARGE, tasks[0].run, tasks[0].most, cut), now)
        schedule.note_deaths(LARGE, np.array([0]), now)
        schedule.note_decided(decided, now)
        assert (schedule._most >= 1000) == (now < 60)


def test_long_lists_of_a_later_record_leave_runs_as_they_are() -> None:
    schedule = Schedule(0, 64)
    schedule.hold(LARGE)
    records_of(schedule, 4000)
    schedule.note_read(4000, 20_000)
    schedule._lengthen(10_000, 0.0)
    assert schedule.take(0.0, 1)[0].run == Run(0, 4000)


@pytest.mark.parametrize(("rows", "longer"), [(500, 64 + 500), (20_000, 2 * 72)])
def test_lists_are_as_long_as_the_first_record_needs_unless_that_is_too_much(rows: int, longer: int) -> None:
    schedule = Schedule(0, 64)
    schedule.hold(LARGE)
    schedule.note_read(0, rows)
    [task] = schedule.take(0.0, 1)
    schedule.note_answered(answer_of(LARGE, task.run, 72, [(0, list(range(72)))]), 0.0)
    assert schedule.take(1.0, 1)[0].most == longer
