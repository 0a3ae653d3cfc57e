"""The judge without Kafka: journal records in, verdicts and decisions out.

judge = Judge(state, genesis)
decided = judge.decide(entries)      # pure: nothing changes
...publish decided.json() and decided.record() in one transaction...
judge.apply(entries, decided.record())
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.judge.batch import Batch, Decided, Entry, pages_of
from stream.judge.decision.decide import Effort, decide
from stream.judge.decision.decide_rows_compiled import VerdictColumns
from stream.judge.forgetting import misfit_forgetting
from stream.judge.hits import hits_of
from stream.judge.ids import NO_PAGE, show
from stream.judge.judged_batch import JudgedBatch
from stream.judge.ledger_records import misfit_ledger
from stream.judge.log_time import binding, log_times
from stream.judge.misfits import invalid, refuse_misfits, refuse_other_records
from stream.judge.rule import Rule
from stream.judge.state.ledger import Admission
from stream.judge.state.page_numbers import NO_NUMBER
from stream.judge.state.state import Prepared, State, StateChange
from stream.judge.turns import decide_turn, misfit_times, misfit_turn, turn_time
from stream.judge.verdict_json_compiled import columns, write
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import (
    NAMES_NEAREST,
    NOT_ADMITTED,
    OF_ANOTHER_CLUSTER,
    Decisions,
)
from stream.messages.journal import Genesis
from stream.messages.verdict import CLUSTERED, Verdict
from stream.tables.arrays import is_among


class Judge:
    """Decides journal records against a state, and applies decisions to the state."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        self.state, self.genesis = state, genesis
        self.rule = Rule(genesis.options, genesis.scheme)

    def decide(
        self, entries: Sequence[Entry], effort: Effort | None = None, cap: int | None = None
    ) -> JudgedBatch:
        """Decide the next journal records, without changing the state.

        With an effort, or before a turn, possibly only the first of them are decided: see
        `JudgedBatch.entries`. With a lifetime, append times count at most as `cap` (rule 15), and no turn may
        be due before the first record.
        """
        state, window = self.state, self.state.window
        if window is None:
            cap = None
        else:
            if turn_time(state, entries[0], cap) is not None:
                raise ValueError(f"a turn is due before journal offset {entries[0].offset}")
            times = log_times(state.time, [entry.time for entry in entries], cap)
            entries = entries[: window.before_turn(times)]
        batch, ends, admission = self._admit(entries, cap)
        if window is not None and (until := window.rows_until(ends)) < len(entries):
            entries = entries[:until]
            batch, ends, admission = self._admit(entries, cap)
        judged = decide(batch, state, self.rule, ends, effort)
        if len(judged) < len(batch):
            entries = entries[: int(np.searchsorted(ends, len(judged), "right"))]
            batch, _, admission = self._admit(entries, cap)
        appended = [entry.time for entry in entries]
        return JudgedBatch(
            self.genesis,
            entries,
            batch,
            judged,
            admission,
            self.rule,
            int(log_times(state.time, appended, cap)[-1]),
            binding(state.time, appended, cap),
        )

    def _admit(self, entries: Sequence[Entry], cap: int | None) -> tuple[Batch, NDArray[np.int64], Admission]:
        """Return the batch of rows to judge, the end of each record in it, and the changes to the ledger."""
        admission = Admission()
        admitted = [self.state.ledger.admit(entry.rows, admission) for entry in entries]
        ends: NDArray[np.int64] = np.cumsum([np.count_nonzero(each) for each in admitted])
        return Batch.of(entries, admitted, self.state.time, cap), ends, admission

    def follow(self, decided: Sequence[Decided]) -> None:
        """Apply recorded decisions. Raises StateError if they do not fit the state or their records."""
        for entries, record, after, appended in decided:
            if record.has_rows:
                self.apply(entries, record, after)
            else:
                self.apply_apart(record, after - 1, appended)

    def apply(self, entries: Sequence[Entry], decisions: Decisions, decided: int = 0) -> None:
        """Apply decisions about exactly these records. `decided` is the next offset of the decisions topic.

        Raises StateError if the decisions do not fit the records.
        """
        self.state.apply(self.prepare(entries, decisions), decided)

    def prepare(self, entries: Sequence[Entry], decisions: Decisions, batch: Batch | None = None) -> Prepared:
        """Encode the state change of decisions without applying it; `state.apply` does that.

        `batch` are the admitted rows, if the caller has them from deciding. Raises StateError like `apply`.
        """
        pages = self._pages(entries, decisions)
        if batch is None:
            batch = self._decided(entries, decisions)
        rank = np.cumsum(decisions.verdict != NOT_ADMITTED) - 1
        hits = hits_of(decisions, pages)
        return self.state.prepare(
            batch,
            StateChange(
                end=decisions.end,
                last=decisions.last,
                time=decisions.time,
                sources=decisions.sources,
                stored_as=decisions.stored_as(pages)[batch.place],
                change=decisions.change[batch.place],
                cluster=decisions.clusters_of(pages)[batch.place],
                cluster_anchor=_anchors(decisions, batch),
                superseded=np.array([each.anchor for each in decisions.superseded], np.int64),
                skipped={int(rank[row]): mask for row, mask in decisions.skipped},
                hit_anchors=hits.anchors,
                hit_duplicates=hits.duplicates,
            ),
        )

    def decide_turn(self, entry: Entry, cap: int | None = None) -> Decisions | None:
        """Decide the turn that is due before a journal record, the next one, without changing the state. None
        if none is due. No batch may be ahead of the store."""
        return decide_turn(self.state, self.genesis, entry, cap)

    def ended_clusters(self, record: Decisions) -> list[str]:
        """Return the clusters of the superseded anchors that a turn, or a record by which pages are
        forgotten, takes from the state, before it is applied: the topic `clusters` is to name them no more.
        No batch may be ahead of the store."""
        state, anchors = self.state, np.zeros(0, np.int64)
        if record.turn is not None:
            anchors = np.arange(state.first.anchors, record.turn.oldest[0])
        elif record.forgotten is not None:
            anchors, _ = record.forgotten.numbers
        dead = state.anchors(anchors[~state.tables.is_alive(anchors)])
        return [show(self.genesis.journal, page) for page in dead.page.tolist()]

    def apply_apart(self, record: Decisions, offset: int, appended: int = 0) -> None:
        """Apply a record that decides no rows: of a ledger, which changes nothing but the position, of a
        turn, or of pages that are forgotten. It stands at this offset of the decisions topic, and was
        appended at a time, in milliseconds since the epoch.

        Raises StateError if it does not fit the state.
        """
        state, genesis = self.state, self.genesis
        if (part := record.ledger) is not None:
            self._refuse("ledger record", offset, misfit_ledger(record, part, state, genesis))
            state.note_ledger(state.meta.ledger if part.first else offset, offset + 1)
        elif (turn := record.turn) is not None:
            self._refuse("turn", offset, misfit_turn(record, turn, state, genesis))
            state.turn(turn, record.time, offset + 1)
        elif (forgotten := record.forgotten) is not None:
            self._refuse("forgetting", offset, misfit_forgetting(record, forgotten, state, genesis))
            state.forget(forgotten, offset + 1, appended)
            state.maintain()

    def _refuse(self, what: str, offset: int, why: str | None) -> None:
        if why:
            raise StateError(
                f"state directory {self.state.store.path}: the {what} at decisions offset {offset} {why}"
            )

    def json(self, entries: Sequence[Entry], decisions: Decisions) -> list[bytes]:
        """Return the verdicts that were published with decisions about exactly these records, in JSON and in
        journal order. The state must be the one that the decisions were made for: it has the URLs of earlier
        pages, and nothing is decided again.

        Raises StateError if the decisions do not fit the records, or name pages that the state lacks.
        """
        pages = self._pages(entries, decisions)
        batch = self._decided(entries, decisions)
        verdicts = VerdictColumns.blank(len(batch))
        verdicts.verdict[:], verdicts.change[:] = (
            decisions.verdict[batch.place],
            decisions.change[batch.place],
        )
        named = np.flatnonzero(is_among(verdicts.verdict, CLUSTERED))
        codes = np.frombuffer(decisions.codes, np.uint8)[batch.place]
        nearest = np.flatnonzero(codes & NAMES_NEAREST)
        of_cluster = np.flatnonzero(is_among(verdicts.verdict, (Verdict.UNIQUE, *CLUSTERED)))
        verdicts.cluster[of_cluster] = decisions.clusters_of(pages)[batch.place[of_cluster]]
        verdicts.other[named] = np.frombuffer(decisions.other, "<i8")
        verdicts.other[nearest] = np.frombuffer(decisions.nearest, "<i8")
        verdicts.distance[named] = np.frombuffer(decisions.distance, np.uint8)
        if not self.genesis.options.strict:
            verdicts.similarity[named] = np.frombuffer(decisions.similarity, "<u2")
        verdicts.similarity[nearest] = np.frombuffer(decisions.nearest_similarity, "<u2")
        verdicts.number[named] = np.frombuffer(decisions.numbers, "<i8")
        verdicts.number[nearest] = np.frombuffer(decisions.nearest_numbers, "<i8")
        urls = self._urls(verdicts, codes & OF_ANOTHER_CLUSTER > 0, batch)
        fields = columns(batch, verdicts, urls, self.rule, self.genesis.journal)
        return write(fields, np.arange(len(batch))).strings()

    def _pages(self, entries: Sequence[Entry], decisions: Decisions) -> NDArray[np.int64]:
        """Return the packed ids (N,) of all rows of records. Raises StateError if decisions do not fit the
        records or the state."""
        refuse_other_records(entries, decisions, self.genesis)
        pages = pages_of(entries)
        refuse_misfits(decisions, pages, self.state, self.rule)
        if why := misfit_times(entries, decisions, _judged_rows(entries, decisions), self.state):
            raise invalid(decisions, why)
        return pages

    def _decided(self, entries: Sequence[Entry], decisions: Decisions) -> Batch:
        """Return the admitted rows of records."""
        sizes = np.cumsum([len(entry.rows) for entry in entries])[:-1]
        admitted = np.frombuffer(decisions.codes, np.uint8) != NOT_ADMITTED
        return Batch.of(entries, np.split(admitted, sizes), self.state.time, decisions.cap)

    def _urls(self, verdicts: VerdictColumns, of_duplicate: NDArray[np.bool_], batch: Batch) -> StringColumn:
        """Return the URL of the page that each row names, if there is one. `of_duplicate` says of which rows
        that is a duplicate, not an anchor. Raises StateError."""
        named = np.flatnonzero(verdicts.other != NO_PAGE)
        pages, first = np.unique(verdicts.other[named], return_index=True)
        row = np.searchsorted(batch.page, pages).clip(max=len(batch) - 1)
        inside = batch.page[row] == pages
        earlier = named[first[~inside]]
        stored = self.state.urls(pages[~inside], verdicts.number[earlier], of_duplicate[earlier])
        urls = StringColumn.joined([batch.url.take(row[inside]), stored, StringColumn.none(1)])
        place = np.full(len(pages), -1)
        place[inside] = np.arange(np.count_nonzero(inside))
        place[~inside] = np.arange(np.count_nonzero(inside), len(pages))
        of = np.full(len(batch), len(pages))
        of[named] = place[np.searchsorted(pages, verdicts.other[named])]
        return urls.take(of)


def _judged_rows(entries: Sequence[Entry], decisions: Decisions) -> NDArray[np.int64]:
    """Return the running total of judged rows after each of n records (n,)."""
    rows = np.append(0, np.cumsum(decisions.verdict != NOT_ADMITTED))
    return rows.take(np.cumsum([len(entry.rows) for entry in entries]))


def _anchors(decisions: Decisions, batch: Batch) -> NDArray[np.int64]:
    """Return the number of the anchor of the cluster that each row's page joins and is stored in; arbitrary
    ones for other rows."""
    codes = np.frombuffer(decisions.codes, np.uint8)[batch.place]
    numbers: NDArray[np.int64] = np.full(len(batch), NO_NUMBER)
    numbers[is_among(decisions.verdict[batch.place], CLUSTERED)] = np.frombuffer(decisions.numbers, "<i8")
    numbers[codes & OF_ANOTHER_CLUSTER > 0] = np.frombuffer(decisions.anchors, "<i8")
    return numbers
