"""What a judge knows of the segments that probers hold, without Kafka.

    announcements, answers of probers -> `ProbedSegments` -> which records can be decided
                                                          -> which tables of its own the judge drops

No verdict depends on it (rule 25): it says when there are answers, never what is decided without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from stream.errors import AnswerError, RecordError, RefutedAnswerError, StateError
from stream.judge.batch import Entry
from stream.judge.decision.candidates_compared import TablesSearch
from stream.judge.ids import INDEX_BITS
from stream.judge.rule import Rule
from stream.judge.segments.answer import (
    Answer,
    BucketCounts,
    ListedPairs,
    Run,
    Segment,
    between,
    shown,
)
from stream.judge.segments.answer_records import DIGEST_BYTES, SentAnswer
from stream.judge.segments.deaths import Deaths
from stream.judge.segments.merged_search import Answers, MergedSearch
from stream.judge.segments.possible import JournalPages, PossibleAnswers
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord, refuse_other_origin

AHEAD: Final = 1 << 20
"""Answers about journal records so far ahead of the next one to judge are not kept; no prober is."""

MOST_ADDED: Final = 1 << 20
"""Pairs and buckets of answers that come before repeated ones are let go, if nothing is decided meanwhile:
about 28 MB."""
LEAST_ADDED: Final = 1 << 10
"""As many pairs count for an answer at least."""


_Columns = ListedPairs | BucketCounts


class Awaited(NamedTuple):
    """What a judge waits for: the answer of a segment about a journal record."""

    segment: Segment
    offset: int
    holder: str
    """Who answered for the segment last; empty if nobody did."""


class _Announced(NamedTuple):
    segment: Segment
    digests: frozenset[bytes]
    """The beginnings of the digests of its files, of which this process has seen announcements."""
    partition: int


@dataclass(slots=True, eq=False)
class _Received:
    """An answer that came."""

    sent: SentAnswer
    name: str
    """The name of its record."""
    checked: int
    compared: int
    """The pages, by packed id, before which it was checked against journal records, and compared with other
    answers."""

    @property
    def answer(self) -> Answer:
        """What it says."""
        return self.sent.answer

    def is_due(self, done: int, until: int) -> bool:
        """Whether it is about pages before `until`, by packed id, that are not `done` yet."""
        return done < min(until, self.answer.run.until)

    def refusal(self, error: AnswerError) -> RecordError:
        """Why it does not count."""
        return RecordError(f"{self.name}: {error}; {_holder(self.sent)} sent it")


class _ByPages:
    """Answers of a segment, by the pages that they are about. Where records are small and a judge stood
    still, there are thousands."""

    def __init__(self, received: Iterable[_Received]) -> None:
        self._received = sorted(enumerate(received), key=lambda each: each[1].answer.run.first)
        runs = [each.answer.run for _, each in self._received]
        self._first = [run.first for run in runs]
        self._until = list(accumulate((run.until for run in runs), max))

    def about(self, run: Run) -> list[_Received]:
        """Return those about some of the pages of a run, in the order in which they came."""
        end = begin = bisect_left(self._first, run.until)
        while begin and self._until[begin - 1] > run.first:
            begin -= 1
        about = (each for each in self._received[begin:end] if each[1].answer.run.until > run.first)
        return [each for _, each in sorted(about, key=itemgetter(0))]


class ProbedSegments:
    """The segments that are announced, the answers about them, and which of them a judge needs answers of."""

    def __init__(self, state: State, rule: Rule, genesis: Genesis, replicas: int) -> None:
        """A judge drops its tables of a segment when so many groups of probers answer for it."""
        self._state, self._genesis, self._replicas = state, genesis, replicas
        self._rule, self._possible = rule, PossibleAnswers(rule)
        self._deaths = state.deaths = Deaths(rule, state.meta.decided)
        self._answers = Answers()
        self.search: Final = MergedSearch(
            TablesSearch(state.tables, state, rule), state, rule, self._answers, self._deaths
        )
        """Where the judge finds candidates."""
        self._announced = dict[int, _Announced]()
        self._sent = dict[Segment, list[_Received]]()
        self._uncompared = list[_Received]()
        """Those of which some pages were not compared yet."""
        self._reached = dict[tuple[Segment, str], int]()
        """Segment of which the judge has tables, group -> the page before which its last answer ends. Such a
        judge mostly decides before answers come."""
        self._holders = dict[Segment, str]()
        self._added = 0
        """Pairs and buckets of answers since `attend` let go of some."""
        self._is_new = False
        """Whether there are answers that `due` did not look at."""
        self._pruned = (-1, -1)
        """The next journal record and the first anchor when `attend` let go of what was decided."""

    @property
    def dropped(self) -> int:
        """Number of announced segments of which the judge has no tables."""
        held = self._state.tables.held
        return sum(each.segment.end <= held for each in self._announced.values())

    @property
    def held(self) -> int:
        """Number of announced segments of which the judge has tables."""
        return len(self._announced) - self.dropped

    @property
    def partitions(self) -> set[int]:
        """The partitions of the topics in which announced segments and answers about them are."""
        return {each.partition for each in self._announced.values()}

    def announce(self, record: SegmentRecord | int, name: str) -> None:
        """Note an announcement, or that the segment with this first number has expired. `name` names the
        record. Raises StateError for that of another journal or scheme, and for one of other anchors in place
        of a segment whose answers are needed: nobody will answer for that any more."""
        if isinstance(record, int):
            self._announced.pop(record, None)
            return
        refuse_other_origin(record, self._genesis, name)
        segment = Segment(record.first, record.end)
        before = self._announced.get(record.first)
        if before is not None and before.segment != segment and before.segment in self._answers:
            raise StateError(
                f"{name}: announces {segment} in place of {before.segment}, of which state directory"
                f" {self._state.store.path} has no tables; take these back with `neardup judge --take-back"
                " all`"
            )
        digests = before.digests if before is not None and before.segment == segment else frozenset[bytes]()
        digest = bytes.fromhex(record.digest)[:DIGEST_BYTES]
        self._announced[record.first] = _Announced(segment, digests | {digest}, record.partition)
        self._is_new = True

    def need_dropped(self) -> None:
        """Need answers of the segments of which the state has no tables. All that was announced must be
        known. Raises StateError if some of these anchors are in no announced segment."""
        tables = self._state.tables
        chain = self._chain(tables.held)
        end = chain[-1].end if chain else tables.first
        if end != tables.held:
            raise StateError(
                f"state directory {self._state.store.path}: has no tables of anchors [{end}, {tables.held}),"
                " which were dropped, and no segments of these are announced; take the tables back with"
                " `neardup judge --take-back all`"
            )
        self._need(chain)

    def _need(self, segments: list[Segment]) -> None:
        self._answers.need(segments)
        for segment in segments:
            self._answers.replace(segment, [each.answer for each in self._sent.get(segment, [])])

    def _chain(self, held: int) -> list[Segment]:
        """The announced segments that have the anchors from the first one on to `held`, one after the
        other."""
        first, chain = self._state.tables.first, list[Segment]()
        for _, (segment, *_) in sorted(self._announced.items()):
            begins = segment.first <= first if not chain else segment.first == chain[-1].end
            if begins and first < segment.end <= held:
                chain.append(segment)
        return chain

    def add(self, sent: SentAnswer, name: str) -> bool:
        """Add an answer, in any order. `name` names its record. Returns whether its segment is announced.

        Raises RecordError for one of another journal, scheme or file than announced, and for one with a
        number that is out of its range.
        """
        answer = sent.answer
        if other := self._genesis.other_origin(sent.journal, sent.scheme):
            raise RecordError(f"{name}: is an answer of {other}")
        announced = self._announced.get(answer.segment.first)
        if announced is None or announced.segment != answer.segment:
            return False
        if sent.digest not in announced.digests:
            raise RecordError(
                f"{name}: {answer} is by {sent.holder}, of a file {sent.digest.hex()} that was not announced"
            )
        applied = self._state.meta.applied
        first = max(answer.run.first, applied << INDEX_BITS)
        received = _Received(sent, name, first, first)
        try:
            self._possible.refuse_others(answer)
        except AnswerError as error:
            raise received.refusal(error) from None
        if answer.segment.end > self._state.tables.held and answer.decided >= self._deaths.first:
            self._reached[answer.segment, sent.group] = answer.run.until
            self._is_new = True
        if answer.run.is_before(applied) or answer.run.start > applied + AHEAD:
            return True
        self._holders[answer.segment] = sent.holder
        self._is_new = True
        self._added += max(LEAST_ADDED, len(answer.pairs.page) + len(answer.counts.page))
        self._sent.setdefault(answer.segment, []).append(received)
        self._uncompared.append(received)
        if answer.segment in self._answers:
            self._answers.add(answer)
        return True

    def awaited(self, offset: int) -> Awaited | None:
        """Return what is awaited before this journal record can be decided, if anything is. The lists of
        answers that are there may be too short all the same."""
        until, segment = self._answers.answered_until(offset, offset + 1, self._deaths)
        if segment is None or until > offset:
            return None
        return Awaited(segment, offset, self._holders.get(segment, ""))

    def answered_until(self, offset: int, end: int) -> int:
        """Return the journal record before which there are answers about all records from `offset` on. The
        search stops at `end`, so that it may be that or a later one."""
        return self._answers.answered_until(offset, end, self._deaths)[0]

    def meet(self, entries: Sequence[Entry]) -> list[RecordError]:
        """Check answers against these journal records, the next ones to decide, and compare those about the
        same pages. Returns why some do not count, which name what the records do not have. Raises AnswerError
        if two differ."""
        first, until = entries[0].offset << INDEX_BITS, entries[-1].offset + 1 << INDEX_BITS
        unchecked = [each for each in self._uncompared if each.is_due(each.checked, until)]
        pages, refusals = JournalPages(entries if unchecked else [], self._rule), list[RecordError]()
        for each in unchecked:
            try:
                pages.refuse_others(each.answer, max(each.checked, first), until)
                each.checked = until
            except AnswerError as error:
                refusals.append(each.refusal(error))
                self._drop_answer(each)
        self._compare(first, until)
        return refusals

    def refuse(self, refuted: RefutedAnswerError) -> RecordError:
        """Let an answer not count, as it says what cannot be. Returns the reason, with the name of its
        record."""
        [each] = [each for sent in self._sent.values() for each in sent if each.answer is refuted.answer]
        self._drop_answer(each)
        return each.refusal(refuted)

    def _drop_answer(self, dropped: _Received) -> None:
        segment = dropped.answer.segment
        self._uncompared = [each for each in self._uncompared if each is not dropped]
        self._sent[segment] = [each for each in self._sent.get(segment, []) if each is not dropped]
        if segment in self._answers:
            self._answers.replace(segment, [each.answer for each in self._sent[segment]])

    def attend(self) -> list[RecordError]:
        """Let go of what is decided. Returns which answers never counted, as they are as of decisions that
        follow those about their pages."""
        applied, before = self._state.meta.applied, self._pruned
        now = applied, self._state.tables.first  # a turn decides no record
        if now == before and self._added <= MOST_ADDED:
            return []
        self._is_new |= now != before
        self._pruned, self._added = now, 0
        return self._prune(applied)

    def due(self) -> Segment | None:
        """Return the next segment if enough groups have answered for it about the next record, or about the
        last one that is decided, so that the judge can drop its own tables of it."""
        if not self._is_new:
            return None
        self._is_new = False
        tables, page = self._state.tables, self._state.meta.applied << INDEX_BITS
        for segment in self._chain(tables.count):
            if segment.end <= tables.held:
                continue
            groups = {
                each.sent.group
                for each in self._sent.get(segment, [])
                if each.answer.run.first <= page < each.answer.run.until
                and self._deaths.knows(each.answer.decided)
            }
            groups.update(of for (each, of), end in self._reached.items() if each == segment and end == page)
            return segment if len(groups) >= self._replicas else None
        return None

    @contextmanager
    def dropping(self, segment: Segment) -> Iterator[Callable[[], None]]:
        """Need the answers of a segment that is due, from now on. Yields what drops the judge's own tables of
        it, to be called while this is entered, in any thread. No batch may be ahead of the store."""
        self._need(self._chain(segment.end))  # first: no other can be announced in its place any more
        yield partial(self._state.hold_from, segment.end)
        self._reached = {key: end for key, end in self._reached.items() if key[0].first >= segment.end}
        self._is_new = True

    def _prune(self, applied: int) -> list[RecordError]:
        """Let go of answers about decided records, of those in whose place others came, and of segments that
        have expired. Returns as `attend` does."""
        refusals, position = list[RecordError](), self._deaths.position
        first, needed = self._state.tables.first, self._answers.segments
        if needed and needed[0].end <= first:
            self._answers.need([each for each in needed if each.end > first])
        announced = {each.segment for each in self._announced.values()}
        for segment, sent in list(self._sent.items()):
            best, kept = dict[tuple[str, Run], _Received](), list[_Received]()
            for each in sent:
                answer = each.answer
                if answer.run.is_before(applied):
                    if answer.decided > position >= 0:
                        later = f"{answer} is as of decision {answer.decided}, which is not before its pages"
                        refusals.append(each.refusal(AnswerError(later)))
                    continue
                if not self._deaths.knows(answer.decided):
                    if answer.decided > self._deaths.position:
                        kept.append(each)
                    continue
                key = each.sent.group, answer.run
                if key not in best or _rank(answer) >= _rank(best[key].answer):
                    best[key] = each
            kept += best.values()
            if kept and (segment in announced or segment in self._answers):
                self._sent[segment] = kept
            else:
                del self._sent[segment]
            if len(kept) < len(sent) and segment in self._answers:
                self._answers.replace(segment, [each.answer for each in kept])
        some = {id(each) for sent in self._sent.values() for each in sent}
        self._uncompared = [each for each in self._uncompared if id(each) in some]
        return refusals

    def _compare(self, first: int, until: int) -> None:
        """Compare answers about the same ones of the pages [first, until), of whichever holders.
        Raises AnswerError if they differ."""
        later, applied, position = list[_Received](), self._state.meta.applied, self._deaths.position
        others = dict[Segment, _ByPages]()
        for one in self._uncompared:
            answer = one.answer
            if answer.run.is_before(applied):
                continue
            if answer.decided <= position and one.is_due(one.compared, until):
                if answer.segment not in others:
                    sent = self._sent.get(answer.segment, [])
                    others[answer.segment] = _ByPages(
                        each for each in sent if each.answer.decided <= position
                    )
                for other in others[answer.segment].about(answer.run):
                    if other is not one:
                        self._refuse_difference(one.sent, other.sent, max(one.compared, first), until)
                one.compared = until
            if one.compared < one.answer.run.until:
                later.append(one)
        self._uncompared = later

    def _refuse_difference(self, one: SentAnswer, other: SentAnswer, first: int, until: int) -> None:
        both = one.answer, other.answer
        first = max(first, *(each.run.first for each in both))
        until = min(until, *(each.run.until for each in both))
        if first >= until:
            return
        refuse = partial(_refuse_unequal, one, other)
        refuse("has anchors", *(self._compared(each, both, first, until) for each in both))
        if self._count_equally(*both):
            refuse("counts anchors in buckets", *(_counted(each, first, until) for each in both))

    def _count_equally(self, one: Answer, other: Answer) -> bool:
        """Whether two answers have to count the same, as no anchor has left a bucket of the segment between
        their positions."""
        if not (self._deaths.knows(one.decided) and self._deaths.knows(other.decided)):
            return False
        left = [self._deaths.since(each.decided, each.segment) for each in (one, other)]
        return len(left[0]) == len(left[1])  # one is the end of the other

    def _compared(self, answer: Answer, both: Sequence[Answer], first: int, until: int) -> ListedPairs:
        """The live pairs of an answer about the pages [first, until), by packed id, of which neither answer
        is cut."""
        some = between(answer.pairs.page, first, until)
        pairs = ListedPairs._make(column[some] for column in answer.pairs)
        alive = self._state.tables.is_alive(pairs.anchor)
        for each in both:
            alive &= ~np.isin(pairs.page, each.cut)
        return ListedPairs._make(column[alive] for column in pairs)


def _rank(answer: Answer) -> tuple[int, int]:
    return answer.decided, answer.most


def _counted(answer: Answer, first: int, until: int) -> BucketCounts:
    """The counts of an answer about the pages [first, until), by packed id."""
    some = between(answer.counts.page, first, until)
    return BucketCounts._make(column[some] for column in answer.counts)


def _holder(sent: SentAnswer) -> str:
    return f"{sent.holder} of group {sent.group or 'without a name'}"


def _refuse_unequal(one: SentAnswer, other: SentAnswer, what: str, mine: _Columns, others: _Columns) -> None:
    """Raise AnswerError unless what two answers say of pages is equal. It names the first page of which it is
    not, and what either says of it, without columns that are equal."""
    columns = [[np.asarray(column) for column in each] for each in (mine, others)]
    if all(map(np.array_equal, *columns)):
        return
    rows = [list(zip(*(column.tolist() for column in each), strict=True)) for each in (mine, others)]
    page = min(row[0] for row in set(rows[0]) ^ set(rows[1]))
    of_page = [[row[1:] for row in each if row[0] == page] for each in rows]
    shares = [[each[0] for each in some] for some in of_page]
    if shares[0] == shares[1]:  # then they differ in what they say of these
        shares = of_page
    holders = [_holder(each) for each in (one, other)]
    raise AnswerError(
        f"{one.answer} and that about {other.answer.run} differ about page {shown(page)}: {holders[0]} {what}"
        f" {shares[0]}, {holders[1]} {shares[1]}; one of them holds a damaged segment: stop it, and start it"
        " with an empty directory"
    )
