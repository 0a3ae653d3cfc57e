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
from stream.fingerprint.columns import among
from stream.judge.batch import Batch, Entry
from stream.judge.decide import Effort, decide
from stream.judge.judged_batch import CLUSTERED, JudgedBatch
from stream.judge.ledger import Admission
from stream.judge.rule import Rule
from stream.judge.state import Prepared, State, StateChange
from stream.messages.decision import NOT_ADMITTED, Decisions
from stream.messages.journal import Genesis
from stream.messages.verdict import Verdict


class Judge:
    """Decides journal records against a state, and applies decisions to the state."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        self.state, self.genesis = state, genesis
        self.rule = Rule(genesis.options, genesis.scheme)

    def decide(self, entries: Sequence[Entry], effort: Effort | None = None) -> JudgedBatch:
        """Decide the next journal records, without changing the state.

        With an effort, possibly only the first of them are decided: see `JudgedBatch.entries`.
        """
        batch, ends, admission = self._admit(entries)
        judged = decide(batch, self.state, self.rule, ends, effort)
        if len(judged) < len(batch):
            entries = entries[: int(np.searchsorted(ends, len(judged), "right"))]
            batch, _, admission = self._admit(entries)
        return JudgedBatch(
            self.genesis,
            entries,
            batch,
            judged,
            admission,
            self.rule,
            max(self.state.time, *(entry.time for entry in entries)),
        )

    def _admit(self, entries: Sequence[Entry]) -> tuple[Batch, NDArray[np.int64], Admission]:
        """Return the batch of rows to judge, the end of each record in it, and the changes to the ledger."""
        admission = Admission()
        admitted = [self.state.ledger.admit(entry.rows, admission) for entry in entries]
        ends: NDArray[np.int64] = np.cumsum([np.count_nonzero(each) for each in admitted])
        return Batch.of(entries, admitted, self.state.time), ends, admission

    def apply(self, entries: Sequence[Entry], decisions: Decisions, decided: int = 0) -> None:
        """Apply decisions about exactly these records. `decided` is the next offset of the decisions topic.

        Raises StateError if the decisions do not fit the records.
        """
        self.state.apply(self.prepare(entries, decisions), decided)

    def prepare(self, entries: Sequence[Entry], decisions: Decisions, batch: Batch | None = None) -> Prepared:
        """Encode the state change of decisions without applying it; `state.apply` does that.

        `batch` are the admitted rows, if the caller has them from deciding. Raises StateError like `apply`.
        """
        total = sum(len(entry.rows) for entry in entries)
        if (
            decisions.journal != self.genesis.journal
            or decisions.options != self.genesis.options.id
            or (entries[0].offset, entries[-1].offset + 1) != (decisions.start, decisions.end)
            or entries[-1].digest != decisions.last
            or len(decisions.verdict) != total
        ):
            raise StateError(
                f"decisions about journal offsets {decisions.start} to {decisions.end} do not fit the journal"
            )
        verdict = np.frombuffer(decisions.verdict, np.uint8)
        admitted = verdict != NOT_ADMITTED
        if misfit := self._misfit(decisions, verdict):
            raise StateError(
                f"decisions about journal offsets {decisions.start} to {decisions.end} are invalid: {misfit}"
            )
        if batch is None:
            sizes = np.cumsum([len(entry.rows) for entry in entries])[:-1]
            batch = Batch.of(entries, np.split(admitted, sizes), self.state.time)
        rank = np.cumsum(admitted) - 1
        verdict = verdict[admitted]
        cluster = batch.page.copy()
        cluster[among(verdict, CLUSTERED)] = np.frombuffer(decisions.clusters, "<i8")
        return self.state.prepare(
            batch,
            StateChange(
                end=decisions.end,
                last=decisions.last,
                time=decisions.time,
                sources=decisions.sources,
                verdict=verdict,
                cluster=cluster,
                superseded=np.array([each.anchor for each in decisions.superseded], np.int64),
                skipped={int(rank[row]): mask for row, mask in decisions.skipped},
            ),
        )

    def _misfit(self, decisions: Decisions, verdict: NDArray[np.uint8]) -> str | None:
        """Return why decisions are inconsistent, or None. The compiled loops rely on this check."""
        if verdict.max(initial=0) > max(Verdict):
            return f"unknown verdict {verdict.max()}; the largest is {max(Verdict):d}"
        if len(decisions.clusters) != 8 * int(np.count_nonzero(among(verdict, CLUSTERED))):
            return f"{len(decisions.clusters) // 8} clusters, which does not fit the verdicts"
        unique, tables = verdict == Verdict.UNIQUE, self.state.design.tables
        for row, mask in decisions.skipped:
            if not (0 <= row < len(verdict) and unique[row] and 0 < mask < 1 << tables):
                return f"row {row} skipped buckets {mask:#x}"
        anchors = self.state.tables.count + int(np.count_nonzero(unique))
        for each in decisions.superseded:
            if not (0 <= each.row < len(verdict) and 0 <= each.anchor < anchors):
                return f"row {each.row} supersedes anchor {each.anchor} of {anchors}"
        return None
