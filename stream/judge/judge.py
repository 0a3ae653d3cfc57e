"""The judge without Kafka: journal records in, verdicts and decisions out.

judge = Judge(state, genesis)
decided = judge.decide(entries)      # pure: nothing changes
...publish decided.json() and decided.record() in one transaction...
judge.apply(entries, decided.record())
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream.errors import StateError
from stream.fingerprint.columns import among
from stream.judge.batch import Batch, Entry
from stream.judge.decide import decide
from stream.judge.decided import CLUSTERED, Decided
from stream.judge.ledger import Admission
from stream.judge.rule import Rule
from stream.judge.state import Prepared, State, Step
from stream.messages.decision import Decisions
from stream.messages.journal import Genesis


class Judge:
    """Decides journal records against a state, and applies decisions to it."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        self.state, self.genesis = state, genesis
        self.rule = Rule(genesis.options, genesis.scheme)

    def decide(self, entries: Sequence[Entry]) -> Decided:
        """What these journal records, the next ones, are judged to be; changes nothing."""
        admission = Admission()
        admitted = [self.state.ledger.admit(entry.rows, admission) for entry in entries]
        batch = Batch.of(entries, admitted, self.state.time)
        return Decided(
            self.genesis,
            entries,
            batch,
            decide(batch, self.state, self.rule),
            admission,
            self.rule,
            max(self.state.time, *(entry.time for entry in entries)),
        )

    def apply(self, entries: Sequence[Entry], decisions: Decisions, decided: int = 0) -> None:
        """Take over decisions about exactly these records; `decided` is the next decisions offset.

        Raises StateError if they do not fit.
        """
        self.state.apply(self.prepare(entries, decisions), decided)

    def prepare(self, entries: Sequence[Entry], decisions: Decisions, batch: Batch | None = None) -> Prepared:
        """The part of `apply` that changes nothing; `state.apply` does the rest. Raises as that does.

        Who has just decided has the batch of admitted rows already.
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
        admitted = verdict != 0
        if batch is None:
            sizes = np.cumsum([len(entry.rows) for entry in entries])[:-1]
            batch = Batch.of(entries, np.split(admitted, sizes), self.state.time)
        rank = np.cumsum(admitted) - 1
        verdict = verdict[admitted]
        cluster = batch.page.copy()
        cluster[among(verdict, CLUSTERED)] = np.frombuffer(decisions.clusters, "<i8")
        return self.state.prepare(
            batch,
            Step(
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
