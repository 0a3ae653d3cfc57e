"""A judge that takes answers of probers, beside a plain one, and probers that are late, away and old."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from stream.errors import AwaitedAnswerError
from stream.fingerprint.row import FINGERPRINTED
from stream.judge.batch import Batch, Entry
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.forgetting import Search
from stream.judge.ids import INDEX_BITS
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.rule import Rule
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import SentAnswer, decode_answer, encode_answer
from stream.judge.segments.answering import Answerer
from stream.judge.segments.probed import ProbedSegments
from stream.judge.state.state import State
from stream.judge.state.taking_back import take_back
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober import following
from stream.roles.prober.sending import halves
from stream.tables.arrays import is_among
from stream.tables.search.nearest import ALL
from tests.judged_crawls import (
    SCHEME,
    crawl,
    entries_of,
    expected_in_turns,
    open_state,
    oracle_of,
    turn_if_due,
    verdicts_of,
)
from tests.oracle import OraclePage
from tests.property.test_rule_24_forgotten_pages import forget, ids_of, request
from tests.split_search import AllAnchors, RangeTables, answers_about

SIZE = 64
"""Anchors of a segment."""


def digest_of(first: int) -> str:
    return hashlib.sha256(str(first).encode()).hexdigest()


def drop(probed: ProbedSegments, segment: Segment) -> None:
    """Drop a judge's tables of a segment, for which it needs answers from now on."""
    with probed.dropping(segment) as drop_tables:
        drop_tables()


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
        self.withdrawn = set[Segment]()
        """Segments that have expired, and of which their holders know that."""
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
                if segment in self.withdrawn:
                    continue
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
        answers = answers_about(run, batch.page[ready], pages, lambda *part: answerer.answer(*part, position))
        genesis, digest = self._genesis, bytes.fromhex(digest_of(segment.first))[:16]
        for part in (part for each in answers for part in self._divided(each)):
            sent = SentAnswer(part, genesis.journal, genesis.scheme_id, group, holder, digest)
            self._sent.append(encode_answer(sent))
        self.seen["ended early"] += len(answers) - 1
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
                sent = decode_answer(value, "an answer")
                assert probed.add(sent, "an answer") or sent.answer.segment in self.withdrawn
        self._sent = late

    def close(self) -> None:
        for each in self._tables.values():
            each.close()


class ProbedJudge:
    """A judge that waits for answers, a plain one, which decides and applies the same, and the oracle."""

    def __init__(self, directory: Path, options: VerdictOptions, members: dict[str, int], seed: int) -> None:
        self._directory, self._options, self._rng = directory, options, random.Random(seed)
        directory.mkdir()
        (directory / "ranges").mkdir()
        self._replicas = max(1, len(members))
        plain, genesis = self._open("plain")
        self._genesis, self._plain = genesis, Judge(plain, genesis)
        self._oracle = oracle_of(options, SCHEME.width)
        self._announced: list[SegmentRecord] = []
        self._probers = Probers(directory / "ranges", genesis, members, seed)
        self._position = 0
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
        before, first = state.tables.held, state.tables.first
        state.close()
        to = before
        if taken_back:
            to = self._rng.choice([0, before // 2 // SIZE * SIZE])
            take_back(self._directory / "judge", self._genesis, to)
            self.seen["taken back"] += 1
        self._start()
        assert self.judge.state.tables.held == min(before, max(first, to))

    def run(self, pages: list[OraclePage], entries: list[Entry], *, forgets: bool = False) -> None:
        """Judge journal records, of which the oracle has the `pages`. With `forgets`, some URLs are forgotten
        on the way."""
        self._pages = {page.id: page for page in pages}
        urls = [page.url for page in pages if page.url] if forgets else []
        at = awaited = 0
        while at < len(entries):
            probed, probers = self._probed, self._probers
            self._turn(entries[at])
            most = min(self.judge.rule.selected * (1 + awaited // 4), ALL.most)
            probers.answer(entries[at : at + 20], most, all_of_them=awaited > 3)
            probers.deliver(probed)
            assert probed.attend() == []
            if (segment := probed.due()) is not None:
                drop(probed, segment)
                self.seen["dropped"] += 1
            assert probed.meet(entries[at : at + 9]) == []
            count = self._decide(entries[at : at + self._rng.choice([1, 2, 7])])
            awaited = 0 if count else awaited + 1
            assert awaited < 60, probed.awaited(entries[at].offset)
            at += count
            if count and self._rng.random() < 0.05:
                self.restart(taken_back=self._rng.random() < 0.5)
            if count and urls and self._rng.random() < 0.1:
                self._forget(self._rng.choice(urls))

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
        until = probed.answered_until(part[0].offset, part[-1].offset + 1)
        part = [each for each in part if each.offset < until] or part[:1]
        awaited = probed.awaited(part[0].offset)
        try:
            decided = self.judge.decide(part)
        except AwaitedAnswerError:
            self.seen["awaited" if awaited else "cut"] += 1
            return 0
        plain = self._plain.decide(decided.entries)
        assert decided.json() == plain.json()
        assert verdicts_of(decided) == self._expected(decided)
        for judge in (self.judge, self._plain):
            judge.apply(decided.entries, decided.record(), self._position + 1)
        self._advance()
        return len(decided.entries)

    def _expected(self, decided: JudgedBatch) -> list[tuple[object, ...]]:
        """The verdicts of the oracle on these records, before which no turn is due any more."""
        found, own = list[tuple[object, ...]](), decided.batch.page
        for entry in decided.entries:
            mine = own[own >> INDEX_BITS == entry.offset].tolist()
            found += expected_in_turns(self._oracle, [self._pages[page] for page in mine], [entry])
        return found

    def _forget(self, url: str) -> None:
        requests = [(0, request(self._plain, "url", url))]
        search = Search(self._plain.state, self._genesis, requests, 1)
        search.run()
        for record in forget(self._plain, search, self._position):
            assert record.forgotten is not None
            self.judge.apply_forgetting(record, record.forgotten, self._position)
            self._oracle.forget(ids_of(self._plain.state, record.forgotten))  # type: ignore[no-untyped-call]
            self.seen["forgotten"] += sum(map(len, record.forgotten.numbers))
            self._advance()

    def _advance(self) -> None:
        """Follow a decision record, of whatever kind; a ledger record may follow it."""
        self._position += 1
        for each in self._probers.follow(self.judge.state):
            self._announced.append(each)
            self._probed.announce(each, "an announcement")
        self._withdraw()
        if self._rng.random() < 0.1:
            for judge in (self.judge, self._plain):
                judge.state.note_ledger(self._position, self._position + 1)
            self._position += 1
            self.seen["ledger records"] += 1
            assert self._probers.follow(self.judge.state) == []

    def _withdraw(self) -> None:
        """Withdraw segments that have expired, some of them later."""
        for segment in self._probers.segments:
            gone = segment.end <= self.judge.state.tables.first and segment not in self._probers.withdrawn
            if gone and self._rng.random() < 0.5:
                self._probers.withdrawn.add(segment)
                self._announced = [each for each in self._announced if each.first != segment.first]
                self._probed.announce(segment.first, "a tombstone")
                self.seen["withdrawn"] += 1

    def close(self) -> None:
        assert self.judge.state.digest() == self._plain.state.digest()
        self._probers.close()
        self.judge.state.close()
        self._plain.state.close()


class Answering:
    """A judge of some pages, and answers of one segment about a record that follows."""

    options = VerdictOptions(compared=3)

    def __init__(self, directory: Path) -> None:
        self.entries = entries_of(crawl(17, 200, dense=True), 1, SCHEME, sizes=(12,))
        self.directory = directory
        state, self.genesis = self.open()
        self.judge = Judge(state, self.genesis)
        decided = self.judge.decide(self.entries[:-1])
        self.judge.apply(decided.entries, decided.record(), 1)
        self.probed = ProbedSegments(state, self.judge.rule, self.genesis, 2)
        probers = Probers(directory, self.genesis, {"": 1}, 1)
        self.announcements = probers.follow(state)
        self.segment = probers.segments[0]
        self.alive = np.flatnonzero(state.tables.is_alive(np.arange(*self.segment)))
        self.last = self.entries[-1]
        """The record that follows."""
        self.run = Run(self.last.offset, self.last.offset + 1)
        self.page = self.run.first | int(np.flatnonzero(is_among(self.last.rows.status, FINGERPRINTED))[0])
        """A page of it that has a fingerprint."""

    def open(self) -> tuple[State, Genesis]:
        return open_state(self.directory, self.options, memory=1 << 18, generation=32)

    def announce(self) -> None:
        for record in self.announcements:
            self.probed.announce(record, "record")

    def meet(self) -> list[str]:
        """What is refused once the record is known."""
        return [str(each) for each in self.probed.meet([self.last])]

    def answer(self, anchors: int = 1) -> Answer:
        """An answer that lists so many anchors of the page, those that are alive first."""
        dead = np.setdiff1d(np.arange(*self.segment), self.alive)
        listed = np.sort(np.concatenate([self.alive, dead])[:anchors])
        near = np.zeros(anchors, np.uint8)
        pairs = ListedPairs(
            np.full(anchors, self.page),
            listed,
            near,
            near,
            np.full(anchors, 10_000),
            np.ones(anchors, np.bool_),
        )
        return Answer(self.segment, self.run, 1, 9, pairs, np.zeros(0, np.int64), BucketCounts.none())

    def counting(self, bucket: int, size: int) -> Answer:
        """An answer that counts anchors in a bucket of the page."""
        return replace(self.answer(), counts=BucketCounts(*np.array([[self.page], [bucket], [size]])))

    def sent(self, group: str = "", answer: Answer | None = None) -> SentAnswer:
        genesis, digest = self.genesis, bytes.fromhex(digest_of(self.segment.first))[:16]
        holder = f"prober-{group or 'a'}"
        return SentAnswer(answer or self.answer(), genesis.journal, genesis.scheme_id, group, holder, digest)
