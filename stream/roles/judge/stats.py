"""Counters of a judge process, and the source gaps for which it waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

import structlog

from stream.judge.judged_batch import JudgedBatch
from stream.judge.state.ledger import Ledger, SourceGap, SourceKey
from stream.judge.state.state import State

log = structlog.get_logger()


@dataclass(slots=True)
class JudgeStats:
    """Counters since the start of the process."""

    verdicts: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    redelivered: int = 0
    gaps: dict[SourceKey, SourceGap] = field(default_factory=dict)
    """Sources that currently wait for missing pages, each with its first gap."""

    def add(self, decided: JudgedBatch, ledger: Ledger) -> int:
        """Count a batch whose transaction is committed, and log gaps. Returns how many gaps are new."""
        self.transactions += 1
        self.redelivered += decided.admission.redelivered
        self.verdicts.update(decided.counts)
        new = 0
        for gap in decided.admission.gaps:
            if self.gaps.get(gap.source, gap).expected != gap.expected:
                del self.gaps[gap.source]  # an earlier gap, which healed within this batch
            if gap.source not in self.gaps:
                self.gaps[gap.source] = gap
                new += 1
                log.error("source_gap", message=str(gap), **asdict(gap))
        for gap in list(self.gaps.values()):
            if not ledger.waits(gap):
                del self.gaps[gap.source]
                log.info("source_gap_healed", **asdict(gap))
        return new

    def fields(self, state: State) -> dict[str, object]:
        """Return the fields of progress in the log."""
        return {
            "verdicts": dict(self.verdicts),
            "transactions": self.transactions,
            "redelivered": self.redelivered,
            "source_gaps": len(self.gaps),
            "applied": state.meta.applied,
            "anchors": state.tables.anchors,
            "rocksdb_probes": state.tables.stats.rocks_probes,
        }
