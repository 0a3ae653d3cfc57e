"""A judge that drops the tables of segments and waits for answers of probers decides what the oracle does,
whoever holds them, and however late, lost, repeated or old answers are."""

from __future__ import annotations

import hashlib
import random
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import AnswerError, AwaitedAnswerError, RecordError, StateError
from stream.fingerprint.row import FINGERPRINTED
from stream.judge.batch import Batch, Entry
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.forgetting import Search
from stream.judge.ids import INDEX_BITS
from stream.judge.judge import Judge
from stream.judge.rule import Rule
from stream.judge.segments import deaths
from stream.judge.segments import probed as probed_module
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import SentAnswer, decode_answer, encode_answer
from stream.judge.segments.answering import Answerer
from stream.judge.segments.probed import ProbedSegments
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.state import State
from stream.judge.state.taking_back import take_back
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober import following
from stream.roles.prober.sending import halves
from stream.tables.arrays import I64, U64, is_among
from stream.tables.search.probing import ALL
from stream.tables.store import anchors
from tests.judged_crawls import (
    SCHEME,
    crawl,
    crowd,
    entries_of,
    expected,
    expected_in_turns,
    open_state,
    oracle_of,
    redelivered,
    turn_if_due,
    verdicts_of,
)
from tests.oracle import OraclePage
from tests.property.test_rule_24_forgotten_pages import forget, request
from tests.split_search import AllAnchors, RangeTables

SIZE = 64
"""Anchors of a segment."""


@pytest.fixture(autouse=True)
def tables_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at a whole chunk of the anchor log."""
    monkeypatch.setattr(anchors, "CHUNK", 1)


def digest_of(first: int) -> str:
    return hashlib.sha256(str(first).encode()).hexdigest()


class Probers:
    """Groups of probers, each with some members that hold segments at random, and what they sent that was not
    delivered yet."""

    def __init__(self, directory: Path, genesis: Genesis, members: dict[str, int], seed: int) -> None:
        self._directory, self._genesis, self._members = directory, genesis, members
        self._rule, self._rng = Rule(genesis.options, genesis.scheme), random.Random(seed)
        self._dividing = random.Random(seed)
        self._anchors: AllAnchors | None = None
        self.died: list[tuple[int, np.ndarray]] = []
        """Positions, and which anchors died up to them, since the one before."""
        self._known = np.zeros(0, np.int64)
        self.segments: list[Segment] = []
        self._tables: dict[tuple[str, Segment], RangeTables] = {}
        self._applied: dict[tuple[str, Segment], int] = {}
        self._sent: list[bytes] = []
        self.seen = Counter[str]()

    def follow(self, state: State) -> list[SegmentRecord]:
        """Follow a judge's decisions. Returns announcements of what is new."""
        if self._anchors is None:
            self._anchors = AllAnchors.none(self._rule, state.tables.first)
        self._anchors.extend(state)
        every = np.arange(state.tables.count)
        dead = every[~state.tables.is_alive(every)]
        self.died.append((state.meta.decided, np.setdiff1d(dead, self._known)))
        self._known = dead
        if not self._members:
            return []
        end = self.segments[-1].end if self.segments else 0
        new = [Segment(first, first + SIZE) for first in range(end, state.tables.count - SIZE + 1, SIZE)]
        self.segments += new
        return [self.announcement(each) for each in new]

    def announcement(self, segment: Segment) -> SegmentRecord:
        digest = digest_of(segment.first)
        genesis = self._genesis
        return SegmentRecord(
            journal=genesis.journal, scheme=genesis.scheme_id, first=segment.first, end=segment.end,
            oldest=segment.first, digest=digest, size=1, dead=digest, dead_size=1, decided=0,
            exported_at="2026-01-01T00:00:00Z",
        )  # fmt: skip

    def answer(self, entries: list[Entry], most: int, *, all_of_them: bool) -> None:
        """Let some members, or all of them, send answers about records."""
        for group, count in self._members.items():
            down = set() if all_of_them else {each for each in range(count) if self._rng.random() < 0.4}
            for segment in self.segments:
                member = self._rng.randrange(count)  # assigned anew
                if member not in down:
                    self._send(group, segment, f"prober-{group}-{member}", entries, most, now=all_of_them)

    def _send(
        self, group: str, segment: Segment, holder: str, entries: list[Entry], most: int, *, now: bool
    ) -> None:
        rng, held = self._rng, (group, segment)
        assert self._anchors is not None
        if held not in self._tables or rng.random() < 0.02:  # a new holder loads it
            path = self._directory / f"{len(list(self._directory.iterdir()))}"
            if held in self._tables:
                self._tables[held].close()
            self._tables[held] = tables = RangeTables(path, self._rule, segment.first)
            tables.extend(self._anchors, segment.end)
            self._applied[held] = 0
        applied, tables = self._applied[held], self._tables[held]
        until = len(self.died) if now else rng.randint(max(1, applied, len(self.died) - 6), len(self.died))
        for _, dead in self.died[applied:until]:
            tables.kill(dead)
        self._applied[held] = until
        first = 0 if now else rng.randint(0, 2)
        entries = entries[first : first + rng.randint(1, 12)]
        if not entries:
            return
        batch = Batch.of(entries, [np.ones(len(each.rows), np.bool_) for each in entries], 0, None)
        ready = np.flatnonzero(is_among(batch.status, FINGERPRINTED))
        pages = FingerprintedPages(
            batch.fingerprint[ready], batch.uncertain[ready], batch.sketch[ready], batch.status[ready]
        )
        run, position = Run(entries[0].offset, entries[-1].offset + 1), self.died[until - 1][0]
        answerer = Answerer(segment, tables.tables, self._anchors, self._rule, most)
        answer = answerer.answer(run, batch.page[ready], pages, position)
        genesis, digest = self._genesis, bytes.fromhex(digest_of(segment.first))[:16]
        for part in self._divided(answer):
            sent = SentAnswer(part, genesis.journal, genesis.scheme_id, group, holder, digest)
            self._sent.append(encode_answer(sent))
        self.seen["stale"] += until < len(self.died)

    def _divided(self, answer: Answer) -> list[Answer]:
        """The answer, or parts of it, as if it were too large for one record."""
        pages = np.union1d(answer.pairs.page, answer.counts.page)
        if len(pages) < 2 or self._dividing.random() < 0.9:
            return [answer]
        self.seen["divided"] += 1
        return [part for half in halves(answer) for part in self._divided(half)]

    def deliver(self, probed: ProbedSegments) -> None:
        """Deliver some of what was sent, in any order, some of it twice; some is lost."""
        rng = self._rng
        rng.shuffle(self._sent)
        late = [each for each in self._sent if rng.random() < 0.2]
        for value in [each for each in self._sent if each not in late]:
            if rng.random() < 0.1:
                self.seen["lost"] += 1
                continue
            for _ in range(1 + (rng.random() < 0.2)):
                assert probed.add(decode_answer(value, "an answer"), "an answer")
        self._sent = late

    def close(self) -> None:
        for each in self._tables.values():
            each.close()


class ProbedJudge:
    """A judge that waits for answers, and a plain one, which decides and applies the same."""

    def __init__(self, directory: Path, options: VerdictOptions, members: dict[str, int], seed: int) -> None:
        self._directory, self._options, self._rng = directory, options, random.Random(seed)
        directory.mkdir()
        (directory / "ranges").mkdir()
        self._replicas = max(1, len(members))
        plain, genesis = self._open("plain")
        self._genesis, self._plain = genesis, Judge(plain, genesis)
        self._announced: list[SegmentRecord] = []
        self._probers = Probers(directory / "ranges", genesis, members, seed)
        self._position, self.found = 0, list[tuple[object, ...]]()
        self.seen = self._probers.seen
        self._start()

    def _open(self, name: str) -> tuple[State, Genesis]:
        return open_state(self._directory / name, self._options, memory=1 << 18, generation=32)

    def _start(self) -> None:
        state, genesis = self._open("judge")
        self._probed = ProbedSegments(state, Rule(self._options, SCHEME), genesis, self._replicas)
        for record in self._announced:
            self._probed.announce(record, "an announcement")
        self._probed.need_dropped()
        self.judge = Judge(state, genesis, self._probed.search)

    def restart(self, *, taken_back: bool) -> None:
        state = self.judge.state
        before = state.tables.held
        to = before // 2 // SIZE * SIZE
        state.close()
        if taken_back:
            take_back(self._directory / "judge", self._genesis, to)
            self.seen["taken back"] += 1
        self._start()
        assert self.judge.state.tables.held == (max(state.tables.first, to) if taken_back else before)

    def run(self, entries: list[Entry], forgets: Sequence[str] = ()) -> None:
        at = awaited = 0
        while at < len(entries):
            probed, probers = self._probed, self._probers
            self._turn(entries[at])
            most = min(self.judge.rule.selected * (1 + awaited // 4), ALL.most)
            probers.answer(entries[at : at + 20], most, all_of_them=awaited > 3)
            probers.deliver(probed)
            probed.attend()
            if (segment := probed.due()) is not None:
                probed.drop(segment)
                self.seen["dropped"] += 1
            count = self._decide(entries[at : at + self._rng.choice([1, 2, 7])])
            awaited = 0 if count else awaited + 1
            assert awaited < 60, probed.awaited(entries[at].offset)
            at += count
            if count and self._rng.random() < 0.05:
                self.restart(taken_back=self._rng.random() < 0.3)
            if count and forgets and self._rng.random() < 0.1:
                self._forget(self._rng.choice(forgets))

    def _turn(self, entry: Entry) -> None:
        turned = turn_if_due(self._plain, entry, None, self._position)
        if turned is not None:
            assert turned.turn is not None
            assert following._of(turned, self._position, self._genesis).asks_again
            self.judge.apply_turn(turned, turned.turn, self._position)
            self._advance()

    def _decide(self, part: list[Entry]) -> int:
        """Decide the records that can be decided. Returns how many."""
        probed = self._probed
        part = [each for each in part if each.offset < probed.answered_until(part[0].offset)] or part[:1]
        awaited = probed.awaited(part[0].offset)
        try:
            decided = self.judge.decide(part)
        except AwaitedAnswerError:
            self.seen["awaited" if awaited else "cut"] += 1
            return 0
        plain = self._plain.decide(decided.entries)
        assert decided.json() == plain.json()
        self.found += verdicts_of(decided)
        for judge in (self.judge, self._plain):
            judge.apply(decided.entries, decided.record(), self._position + 1)
        self._advance()
        return len(decided.entries)

    def _forget(self, url: str) -> None:
        requests = [(0, request(self._plain, "url", url))]
        search = Search(self._plain.state, self._genesis, requests, 1)
        search.run()
        for record in forget(self._plain, search, self._position):
            assert record.forgotten is not None
            self.judge.apply_forgetting(record, record.forgotten, self._position)
            self.seen["forgotten"] += sum(map(len, record.forgotten.numbers))
            self._advance()

    def _advance(self) -> None:
        self._position += 1
        for each in self._probers.follow(self.judge.state):
            self._announced.append(each)
            self._probed.announce(each, "an announcement")

    def close(self) -> None:
        assert self.judge.state.digest() == self._plain.state.digest()
        self._probers.close()
        self.judge.state.close()
        self._plain.state.close()


def check(
    directory: Path, pages: list[OraclePage], options: VerdictOptions, members: dict[str, int], seed: int = 1
) -> Counter[str]:
    entries = redelivered(entries_of(pages, seed, SCHEME, sizes=(1, 3, 12)), pages, seed)
    oracle = oracle_of(options, SCHEME.width)
    if options.lifetime:
        entries = [replace(entry, time=10**12 + 15_000 * at) for at, entry in enumerate(entries)]
        want = expected_in_turns(oracle, pages, entries)
    else:
        want = expected(oracle, pages)
    judge = ProbedJudge(directory, options, members, seed)
    judge.run(entries)
    assert judge.found == want
    judge.close()
    return judge.seen


@pytest.mark.parametrize(
    ("probers", "options"),
    [
        (0, VerdictOptions()),
        (1, VerdictOptions(bucket_cap=2)),
        (2, VerdictOptions(lifetime=600, bucket_cap=2)),
        (3, VerdictOptions.paper()),
        (5, VerdictOptions(bucket_cap=4, compared=3)),
    ],
)
def test_rule_25_verdicts_do_not_depend_on_probers(
    tmp_path: Path, probers: int, options: VerdictOptions
) -> None:
    members = {"": probers, "b": max(1, probers - 1)} if probers else {}
    seen = check(tmp_path / "run", crawl(17, 450, dense=True, skew=0.4), options, members)
    if probers:
        assert all(seen[each] for each in ("dropped", "stale", "lost", "awaited", "divided")), seen


def test_nor_where_lists_are_cut(tmp_path: Path) -> None:
    pages = [replace(page, url=f"http://host/{at * 7 % 60}") for at, page in enumerate(crowd(5, 500))]
    seen = check(tmp_path / "run", pages, VerdictOptions(compared=1), {"": 2})
    assert seen["cut"] > 5, seen


def test_nor_where_pages_are_forgotten_and_few_deaths_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "MOST_DEATHS", 8)
    pages = crawl(23, 350, dense=True, skew=0.4)
    entries = entries_of(pages, 3, SCHEME, sizes=(1, 3, 12))
    judge = ProbedJudge(tmp_path / "run", VerdictOptions(bucket_cap=2), {"": 2}, 3)
    judge.run(entries, [page.url or "" for page in pages])
    judge.close()
    assert judge.seen["forgotten"] > 5, judge.seen


def test_nor_where_more_expire_at_once_than_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, lost = list[int](), list[int]()

    class Watched(deaths.Deaths):
        def note(self, numbers: I64, words: U64, skipped: U64) -> None:
            noted.append(len(numbers))
            super().note(numbers, words, skipped)

        def lose(self) -> None:
            lost.append(1)
            super().lose()

    monkeypatch.setattr(deaths, "MOST_DEATHS", 8)
    monkeypatch.setattr(probed_module, "Deaths", Watched)
    options = VerdictOptions(lifetime=600, bucket_cap=2)
    seen = check(tmp_path / "run", crawl(9, 450, dense=False, skew=0.4), options, {"": 2})
    assert seen["dropped"], seen
    assert lost
    assert max(noted) <= 8


class Answering:
    """A judge of some pages, and answers of one segment about a record that follows."""

    def __init__(self, directory: Path) -> None:
        self.entries = entries_of(crawl(17, 200, dense=True), 1, SCHEME, sizes=(12,))
        state, self.genesis = open_state(directory, VerdictOptions(), memory=1 << 18, generation=32)
        self.judge = Judge(state, self.genesis)
        decided = self.judge.decide(self.entries[:-1])
        self.judge.apply(decided.entries, decided.record(), 1)
        self.probed = ProbedSegments(state, self.judge.rule, self.genesis, 2)
        probers = Probers(directory, self.genesis, {"": 1}, 1)
        self.announcements = probers.follow(state)
        self.segment = probers.segments[0]
        self.alive = np.flatnonzero(state.tables.is_alive(np.arange(*self.segment)))
        self.run = Run(self.entries[-1].offset, self.entries[-1].offset + 1)

    def announce(self) -> None:
        for record in self.announcements:
            self.probed.announce(record, "record")

    def answer(self) -> Answer:
        page = self.run.start << INDEX_BITS
        pairs = ListedPairs._make(map(np.array, ([page], self.alive[:1], [0], [0], [10_000], [True])))
        return Answer(self.segment, self.run, 1, 9, pairs, np.zeros(0, np.int64), BucketCounts.none())

    def sent(self, group: str = "", answer: Answer | None = None) -> SentAnswer:
        genesis, digest = self.genesis, bytes.fromhex(digest_of(self.segment.first))[:16]
        holder = f"prober-{group or 'a'}"
        return SentAnswer(answer or self.answer(), genesis.journal, genesis.scheme_id, group, holder, digest)


def test_answers_that_do_not_count_are_refused_by_name(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    assert not given.probed.add(given.sent(), "record")  # not announced yet
    given.announce()
    counts = BucketCounts(*np.array([[given.run.start << INDEX_BITS], [40], [1]]))
    for sent, message in (
        (given.sent()._replace(journal="0" * 32), "topic t: is an answer of journal 000"),
        (given.sent()._replace(scheme="0" * 16), "topic t: is an answer of scheme 000"),
        (given.sent()._replace(digest=bytes(16)), "topic t: .* by prober-a, of a file 000.* not announced"),
        (given.sent(answer=replace(given.answer(), counts=counts)), "topic t: .* bucket 40, which no page"),
    ):
        with pytest.raises(RecordError, match=message):
            given.probed.add(sent, "topic t")
    other = msgspec.structs.replace(given.announcements[0], scheme="0" * 16)
    with pytest.raises(StateError, match="topic t: is of scheme 000"):
        given.probed.announce(other, "topic t")
    given.judge.state.close()


def test_holders_of_either_file_answer_for_a_range_that_was_exported_twice(
    tmp_path: Path,
) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    other, third = "cd" * 32, bytes.fromhex("ef" * 16)
    given.probed.announce(msgspec.structs.replace(given.announcements[0], digest=other), "record")
    assert given.probed.add(given.sent(), "record")
    assert given.probed.add(given.sent("b")._replace(digest=bytes.fromhex(other)[:16]), "record")
    with pytest.raises(RecordError, match=r"of a file efef.* that was not announced"):
        given.probed.add(given.sent("c")._replace(digest=third), "record")
    assert given.probed.due() == given.segment
    given.judge.state.close()


def test_tables_are_dropped_once_enough_groups_answer(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    offset = given.run.start
    for sent in (given.sent(), given.sent()._replace(holder="other")):
        assert given.probed.add(sent, "record")
        assert given.probed.due() is None  # of one group
    given.probed.add(given.sent("b"), "record")
    given.probed.attend()
    assert given.probed.due() == given.segment
    assert (given.probed.held, given.probed.dropped) == (len(given.announcements), 0)
    assert given.probed.awaited(offset) is None
    given.probed.drop(given.segment)
    assert given.judge.state.tables.held == given.segment.end
    assert given.probed.dropped == 1
    assert given.probed.due() is None
    assert given.probed.awaited(offset) is None
    assert given.probed.awaited(offset + 1) == (given.segment, offset + 1, "prober-b")
    given.judge.state.close()
    state, _ = open_state(tmp_path / "judge", VerdictOptions(), memory=1 << 18, generation=32)
    probed = ProbedSegments(state, given.judge.rule, given.genesis, 2)
    with pytest.raises(StateError, match=r"no tables of anchors \[0, 64\).*--take-back all"):
        probed.need_dropped()
    probed.announce(given.announcements[0], "record")
    probed.need_dropped()
    assert probed.awaited(offset) == (given.segment, offset, "")
    state.close()


def test_tables_are_dropped_though_a_judge_decides_before_answers_come(tmp_path: Path) -> None:
    """At a moderate rate, one with all tables is always faster than its probers."""
    given = Answering(tmp_path / "judge")
    given.announce()
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
    given.probed.drop(given.segment)
    assert given.probed.due() is None
    given.judge.state.close()


def test_nothing_is_awaited_of_a_segment_that_a_turn_lets_expire(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    given.probed.attend()
    state, offset = given.judge.state, given.run.start
    given.probed.drop(given.segment)
    assert given.probed.awaited(offset) == (given.segment, offset, "")
    # No record is decided. The announcement is withdrawn, so nobody answers any more.
    writes = state.store.batch()
    state.raise_first(writes, PageNumbers(given.segment.end, 0))
    state.store.write(writes)
    given.probed.announce(given.segment.first, "record")
    given.probed.attend()
    assert given.probed.awaited(offset) is None
    state.close()


def test_an_answer_of_a_position_that_never_comes_is_let_go(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    answer = replace(given.answer(), decided=1 << 60)
    kept = weakref.ref(answer.cut)
    given.probed.add(given.sent(answer=answer), "record")
    given.probed.attend()
    decided = given.judge.decide(given.entries[-1:])
    given.judge.apply(decided.entries, decided.record(), 2)
    given.probed.attend()
    del answer
    assert kept() is None
    given.judge.state.close()


def test_repeated_answers_are_let_go_while_nothing_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probed_module, "MOST_ADDED", 5000)
    given = Answering(tmp_path / "judge")
    given.announce()
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
    given.judge.state.close()


def test_another_range_in_place_of_one_whose_tables_are_dropped_is_refused(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    other = msgspec.structs.replace(given.announcements[0], end=given.segment.end + 1)
    given.probed.announce(other, "record")  # has all tables
    given.announce()
    given.probed.drop(given.segment)
    with pytest.raises(StateError, match=r"^record: .* \[0, 65\) in place of .* \[0, 64\),.*--take-back all"):
        given.probed.announce(other, "record")
    given.judge.state.close()


def test_groups_that_differ_are_named(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    answer, page = given.answer(), given.run.start << INDEX_BITS
    none = replace(answer, pairs=ListedPairs._make(each[:0] for each in answer.pairs))
    given.probed.add(given.sent(), "record")
    # Equal, cut, and of a position that is not reached yet.
    for other in (answer, replace(answer, most=1, cut=np.array([page])), replace(none, decided=2)):
        given.probed.add(given.sent("b", other), "record")
        given.probed.attend()
    tables, writes = given.judge.state.tables, given.judge.state.store.batch()
    tables.kill(writes, given.alive[:1])
    given.judge.state.store.write(writes)
    given.probed.add(given.sent("b", none), "record")
    given.probed.attend()  # the anchor is dead
    pairs = answer.pairs._replace(anchor=given.alive[1:2])
    given.probed.add(given.sent("b", replace(answer, pairs=pairs)), "record")
    with pytest.raises(
        AnswerError, match=r"page .*\.0: prober-b of group b has anchors \[\d+\], prober-a of"
    ):
        given.probed.attend()
    given.judge.state.close()


def test_holders_that_count_differently_are_named(tmp_path: Path) -> None:
    given = Answering(tmp_path / "judge")
    given.announce()
    page, state = given.run.start << INDEX_BITS, given.judge.state
    one, two = (
        replace(given.answer(), counts=BucketCounts(*np.array([[page], [3], [size]]))) for size in (1, 2)
    )
    for group in ("", "b"):
        given.probed.add(given.sent(group, one), "record")
    given.probed.attend()
    assert state.deaths is not None
    state.deaths.note(given.alive[1:2], *state.tables.entered(given.alive[1:2]))
    state.deaths.reach(2)
    given.probed.add(given.sent("b", replace(two, decided=2)), "record")
    given.probed.attend()  # an anchor has left buckets between the two positions
    given.probed.add(given.sent("", two)._replace(holder="late"), "record")
    with pytest.raises(
        AnswerError, match=r"\.0: late of group without .* in buckets \[\(3, 2\)\], prober-a .* \[\(3, 1\)\]"
    ):
        given.probed.attend()
    state.close()
