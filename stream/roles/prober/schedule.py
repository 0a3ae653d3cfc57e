"""What a prober answers next: about which journal records, for which segment.

A state machine without Kafka, tables or a clock of its own. The role tells it what was read, decided and
answered, and asks it for tasks.

Answers may be lost: nobody acknowledges them, a judge that begins to lead reads those that follow, and
retention deletes old ones. So where decisions stand still, all that was answered beyond them is answered
again, with longer lists: for the first of these records as long as could be needed. A page of a record
supersedes one anchor at most, so as many as a judge selects are left of a list that has one more for each
page of the record. Where anchors of a list die, it becomes long enough to outlast twice as many. For a minute
after that lists stay so long, as what made them too short once mostly goes on.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.judge.ids import INDEX_BITS, pack
from stream.judge.segments.answer import Answer, Run, Segment

RUN_ROWS: Final = 4096
"""Rows of a run of records, unless its first record has more. Tables are searched with as many at a time."""
AHEAD_ROWS: Final = 65_536
"""Rows beyond the last decided record that are read: two batches of a judge. About 7 MB."""
AHEAD_ENTRIES: Final = 1 << 20
"""Pairs and buckets in the answers of a segment beyond the last decided record, after which no further ones
are given once the first of these records is answered to its end: about 28 MB in a judge. Ordinary pages have
few; of a flood, each has as many as a list may."""
STILL_SECONDS: Final = 5.0
"""How long decisions stand still before what is beyond them is answered again."""
LONGEST_STILL_SECONDS: Final = 60.0
CUT_SHARE: Final = 10
"""They stand still for a tenth of the time where a list for the first of these records is cut, which mostly
is the reason."""
SPARE: Final = 8
"""A list is longer by this part of what a judge selects, so that it suffices although some of it die in the
very record that it is for: no decision comes between."""


class Reason(StrEnum):
    """Why records are answered."""

    NEW = "new"
    DEATHS = "deaths"
    """Of a list that is cut, anchors died, so that it might not outlast another decision."""
    REPEATED = "repeated"
    """Decisions stand still, or another judge leads."""


class Task(NamedTuple):
    """Records to answer for a segment."""

    segment: Segment
    run: Run
    most: int
    """Pairs to list for a page."""
    reason: Reason


class _Record(NamedTuple):
    offset: int
    rows: int
    """Those that have a fingerprint, which are answered about."""
    all_rows: int

    @property
    def size(self) -> int:
        """What it counts of what is read ahead. Records without rows take memory as well."""
        return max(self.rows, 1)

    @property
    def first(self) -> int:
        """Its first page, by packed id."""
        return pack(self.offset, 0)

    @property
    def until(self) -> int:
        """The page, by packed id, before which it ends."""
        return pack(self.offset + 1, 0)


class _CutLists(NamedTuple):
    """m pairs in lists that are cut, by page."""

    page: NDArray[np.int64]
    anchor: NDArray[np.int64]

    def take(self, some: NDArray[np.bool_]) -> _CutLists:
        """Return some of the pairs."""
        return _CutLists(self.page[some], self.anchor[some])

    def sizes(self) -> NDArray[np.int64]:
        """Return how many anchors each list has (n,)."""
        return np.diff(np.flatnonzero(np.diff(self.page, prepend=-1)), append=len(self.page))


@dataclass(slots=True)
class _Held:
    """What was answered for a segment."""

    next: int
    """Pages from here on, by packed id, are answered next."""
    again: set[int] = field(default_factory=set)
    """Pages before that, by packed id, from which on the rest of their records is to be answered again."""
    repeated: int = 0
    """Pages before this one, by packed id, were answered before."""
    cut: dict[int, _CutLists] = field(default_factory=dict)
    """Offset of a record -> those of its lists that are cut."""
    ahead: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First page of a run that is not decided, by packed id -> the page before which it ends, and the pairs
    and buckets of its answer."""
    taken: Task | None = None
    """The last task."""

    @property
    def entries(self) -> int:
        """The pairs and buckets of the answers about what is not decided."""
        return sum(entries for _, entries in self.ahead.values())


class Schedule:
    """Says what is answered next."""

    def __init__(self, judged: int, selected: int) -> None:
        """`judged` is the journal offset up to which decisions were made; `selected` is how many candidates a
        judge selects for a page."""
        self.judged = judged
        """The journal offset up to which decisions were made."""
        self._selected = selected
        # In strict mode, where all are selected, no list is cut.
        self.shortest: Final = min(selected + selected // SPARE, sys.maxsize)
        """How many pairs are listed for a page unless those were too few lately."""
        self._most = self.shortest
        self._lengthened = 0.0  # when lists last needed to be about as long as they are
        self._records = list[_Record]()  # read and not decided
        self._rows = 0  # in them
        self._held = dict[Segment, _Held]()
        self._still_since: float | None = None  # None while nothing is answered that is not decided
        self._still_end = 0  # what was read when that began
        self._patience = STILL_SECONDS
        self._is_asked_again = False

    @property
    def segments(self) -> list[Segment]:
        """The segments that are held."""
        return list(self._held)

    @property
    def room(self) -> int:
        """Rows that may be read ahead now; none if not positive."""
        return AHEAD_ROWS - self._rows

    @property
    def awaits_decisions(self) -> bool:
        """Whether decisions are awaited for room to read ahead or to answer, or for lists that are cut, of
        which they say whether an anchor died."""
        is_short = any(held.cut or self._is_full(held) for held in self._held.values())
        return is_short or self.room < AHEAD_ROWS // 2

    @property
    def behind(self) -> int:
        """Rows that are read and not decided, and which some segment was not asked about, though it could
        answer."""
        waiting = [held.next for held in self._held.values() if not self._is_full(held)]
        first = min(waiting, default=sys.maxsize)
        return sum(each.rows for each in self._records if each.until > first)

    def _is_full(self, held: _Held) -> bool:
        """Whether so much is answered that nothing new is, until some of it is decided. For that, the first
        record has to be answered to its end."""
        is_enough = held.entries >= AHEAD_ENTRIES
        return is_enough and bool(self._records) and held.next >= self._records[0].until

    # What happened.

    def hold(self, segment: Segment) -> None:
        """Answer for a segment from now on: all that is not decided."""
        self._held[segment] = _Held(pack(self.judged, 0))

    def release(self, segment: Segment) -> None:
        """Answer for a segment no more."""
        self._held.pop(segment, None)
        if not self._held:
            self._still_since = None

    def note_read(self, offset: int, rows: int, all_rows: int = 0) -> bool:
        """Note the next journal record, with so many `rows` that have a fingerprint, of `all_rows`. Returns
        whether it is still to be decided."""
        if offset < self.judged:
            return False
        self._records.append(_Record(offset, rows, max(rows, all_rows)))
        self._rows += self._records[-1].size
        return True

    def note_decided(self, end: int, now: float) -> None:
        """Note that the journal is decided up to `end`."""
        if end <= self.judged:
            return
        self.judged = end
        decided = self._records[: self._place(end)]
        del self._records[: len(decided)]
        self._rows -= sum(each.size for each in decided)
        first = pack(end, 0)
        for held in self._held.values():
            held.next = max(held.next, first)
            held.again = {page for page in held.again if page >= first}
            held.cut = {offset: anchors for offset, anchors in held.cut.items() if offset >= end}
            held.ahead = {page: run for page, run in held.ahead.items() if run[0] > first}
        if now >= self._lengthened + LONGEST_STILL_SECONDS:
            self._most = self.shortest
        self._patience = STILL_SECONDS
        self._still_since = None
        self._watch(now)

    def note_asked_again(self) -> None:
        """Note that a judge may not have or not take the answers that were sent before: they are due
        again."""
        self._is_asked_again = True

    def note_deaths(self, segment: Segment, dead: NDArray[np.int64], now: float) -> None:
        """Note that anchors of a segment died. A judge takes the dead from lists by itself; only what follows
        in a list that is cut it cannot know. A list is due again if it might not outlast another decision
        like this one, and lists become long enough to outlast two."""
        held = self._held.get(segment)
        if held is None or not len(dead):
            return
        died, left = 0, dict[int, int]()
        for offset, lists in held.cut.items():
            alive = ~np.isin(lists.anchor, dead)
            if not alive.all():
                before, held.cut[offset] = lists.sizes(), lists.take(alive)
                dead_of = np.add.reduceat(~alive, np.cumsum(before) - before, dtype=np.int64)
                died, left[offset] = max(died, int(dead_of.max())), int((before - dead_of).min())
        needed = self.shortest + died
        held.again.update(
            pack(offset, 0)
            for offset, least in left.items()
            if least < needed and pack(offset, 0) < held.next
        )
        if died:
            self._lengthen(needed + died, now)

    def note_answered(self, answer: Answer, now: float) -> None:
        """Note an answer that was sent, of a task that was taken. If it ends before the task does, which is
        the last one of its segment then, the rest is answered next."""
        held, run = self._held.get(answer.segment), answer.run
        if held is None:
            return
        task = held.taken
        if task is not None and run.first == task.run.first and run.until < task.run.until:
            self._return(held, task, run.until)
        _note_cut(held.cut, answer)
        held.ahead[run.first] = run.until, len(answer.pairs.page) + len(answer.counts.page)
        if self._still_since is None:
            self._watch(now)
        elif task is not None and task.reason != Reason.REPEATED and self._is_about_first(run):
            self._still_since = now  # nothing could be decided before

    def _is_about_first(self, run: Run) -> bool:
        """Whether a run has pages of the first record that is not decided."""
        return (
            bool(self._records) and self._records[0].first < run.until and run.first < self._records[0].until
        )

    def _return(self, held: _Held, task: Task, first: int) -> None:
        """Let the pages of a task from `first` on be answered as if it had not been taken."""
        if task.reason != Reason.DEATHS:
            held.next = first
            return
        rest = self._records[self._place(first >> INDEX_BITS) :]
        held.again.update(max(first, each.first) for each in rest if each.first < task.run.until)

    def _watch(self, now: float) -> None:
        """Watch from now on whether decisions stand still, if something is answered that is not decided."""
        if self._records and any(held.next > self._records[0].first for held in self._held.values()):
            self._still_since, self._still_end = now, self._records[-1].until

    # What to do.

    def take(self, now: float, most: int) -> list[Task]:
        """Return at most so many tasks, each of another segment, those about the first records first.

        The tasks that were taken before have been answered, and their answers noted.
        """
        if self._is_asked_again:
            self._is_asked_again, self._patience = False, STILL_SECONDS
            self._begin_again(now)
        if self.wait(now) == 0 and all(
            held.next >= self._still_end or self._is_full(held) for held in self._held.values()
        ):
            self._lengthen(max(2 * self._most, self._needed_first()), now)
            self._patience = min(2 * self._patience, LONGEST_STILL_SECONDS)
            self._begin_again(now)
        return self._next(most)

    def wait(self, now: float) -> float | None:
        """Return for how many seconds there is nothing to do, if no task is left and nothing is noted; None
        for any time."""
        if self._still_since is None:
            return None
        patience = self._patience / CUT_SHARE if self._is_first_cut else self._patience
        return max(0.0, self._still_since + patience - now)

    @property
    def _is_first_cut(self) -> bool:
        """Whether a list for the first record that is not decided is cut."""
        return any(self._records[0].offset in held.cut for held in self._held.values())

    def _needed_first(self) -> int:
        """How long lists for the first record can have to be, if they are cut and that is not too much."""
        first = self._records[0]
        needed = self._longest(first.all_rows)
        return needed if self._is_first_cut and first.rows * needed <= AHEAD_ENTRIES else 0

    def _lengthen(self, most: int, now: float) -> None:
        """Let lists have so many pairs from now on, if they have fewer, as far as any could be needed. They
        become shorter a minute after half of that was last enough."""
        if 2 * most > self._most:
            self._lengthened = now
        if self._records:
            self._most = max(
                self._most, min(most, self._longest(max(each.all_rows for each in self._records)))
            )

    def _begin_again(self, now: float) -> None:
        """Let all be answered again that is not decided."""
        if self._still_since is None:
            return
        self._watch(now)
        for held in self._held.values():
            held.repeated = max(held.repeated, held.next)
            held.next, held.again, held.ahead = pack(self.judged, 0), set(), {}

    def _next(self, most: int) -> list[Task]:
        due = [(start, segment) for segment in self._held if (start := self._first_due(segment)) is not None]
        return [self._take(segment, start) for start, segment in sorted(due)[:most]]

    def _first_due(self, segment: Segment) -> int | None:
        """The first page to answer for a segment, by packed id."""
        held = self._held[segment]
        if held.again:
            return min(held.again)
        if self._is_full(held):
            return None
        place = self._place(held.next >> INDEX_BITS)
        return max(held.next, self._records[place].first) if place < len(self._records) else None

    def _take(self, segment: Segment, page: int) -> Task:
        """Return the task about the pages from `page` on, by packed id, and count them as answered."""
        held, first = self._held[segment], self._place(page >> INDEX_BITS)
        is_again, rows, end, most = bool(held.again), 0, first, self.shortest
        for each in self._records[first:]:
            rows, longer = rows + each.rows, max(most, min(self._most, self._longest(each.all_rows)))
            # Long lists are for what is decided next: for later records they would be out of date by then.
            is_long = rows * longer > RUN_ROWS * self.shortest
            if end > first and (is_long or (is_again and each.first not in held.again)):
                break
            end, most = end + 1, longer
        until = self._records[end - 1].until
        if is_again:
            until = min(until, held.next)
            held.again = {each for each in held.again if each >= until}
            reason = Reason.DEATHS
        else:
            held.next = until
            reason = Reason.NEW if page >= held.repeated else Reason.REPEATED
        held.taken = Task(segment, Run.between(page, until), most, reason)
        return held.taken

    def _longest(self, rows: int) -> int:
        """How long lists for a record of so many rows can have to be."""
        return max(self.shortest, min(self._selected + rows, sys.maxsize))

    def _place(self, offset: int) -> int:
        """The index of the first record from this offset on."""
        return bisect_left(self._records, offset, key=lambda each: each.offset)


def _note_cut(cut: dict[int, _CutLists], answer: Answer) -> None:
    """Note those lists of an answer that are cut, in place of an earlier answer's about the same pages."""
    run = answer.run
    for offset, lists in list(cut.items()):
        if run.start <= offset <= run.end:  # which may end within its last record
            cut[offset] = lists.take((lists.page < run.first) | (lists.page >= run.until))
    for offset, lists in _cut_of(answer):
        if before := cut.get(offset):
            lists = _CutLists._make(map(np.concatenate, zip(before, lists, strict=True)))
            order = np.argsort(lists.page, kind="stable")
            lists = _CutLists(lists.page[order], lists.anchor[order])
        cut[offset] = lists
    for offset in [offset for offset, lists in cut.items() if not len(lists.page)]:
        del cut[offset]


def _cut_of(answer: Answer) -> Iterator[tuple[int, _CutLists]]:
    """Yield, by offset of the record, the lists of an answer that are cut."""
    page, anchor = answer.pairs.page, answer.pairs.anchor
    first, end = (np.searchsorted(page, answer.cut, side) for side in ("left", "right"))
    some = np.zeros(len(page) + 1, np.int64)
    some[first] += 1
    some[end] -= 1
    inside = np.cumsum(some[:-1]) > 0
    page, anchor = page[inside], anchor[inside]
    starts = np.flatnonzero(np.diff(page >> INDEX_BITS, prepend=-1))
    for start, stop in pairwise([*starts.tolist(), len(page)]):
        yield int(page[start]) >> INDEX_BITS, _CutLists(page[start:stop], anchor[start:stop])
