"""The judge without Kafka: journal records in, verdicts and decisions out.

judge = Judge(state, genesis)
decided = judge.decide(entries)      # pure: nothing changes
...publish decided.verdicts() and decided.record() in one transaction...
judge.apply(entries, decided.record())
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.fingerprint.row import NO_HASH
from stream.judge.batch import Batch, Entry
from stream.judge.decide import Judged, decide
from stream.judge.ids import show
from stream.judge.ledger import Admission
from stream.judge.rule import Rule
from stream.judge.state import State, Step
from stream.messages.decision import Decisions, Superseded
from stream.messages.journal import NO_TIME, Genesis
from stream.messages.verdict import (
    Change,
    ClusterRecord,
    PageRef,
    Source,
    Verdict,
    VerdictRecord,
    rfc3339,
)

_VERDICTS = {each.value: each.name.lower() for each in Verdict}
_CHANGES = {each.value: None if each is Change.NONE else each.name.lower() for each in Change}
_CLUSTERED = (Verdict.DUPLICATE, Verdict.RECRAWL)


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What a judge made of some journal records."""

    genesis: Genesis
    entries: Sequence[Entry]
    batch: Batch
    judged: Judged
    admission: Admission
    rule: Rule
    log_time: int
    """Log time after the last record, milliseconds since the epoch."""

    def record(self) -> Decisions:
        """What goes to the `decisions` topic."""
        total = sum(len(entry.rows) for entry in self.entries)
        verdict, change = np.zeros(total, np.uint8), np.zeros(total, np.uint8)
        verdict[self.batch.place], change[self.batch.place] = self.judged.verdict, self.judged.change
        clustered = np.isin(self.judged.verdict, _CLUSTERED)
        place = self.batch.place.tolist()
        return Decisions(
            journal=self.genesis.journal,
            options=self.genesis.options.id,
            start=self.entries[0].offset,
            end=self.entries[-1].offset + 1,
            last=self.entries[-1].digest,
            time=self.log_time,
            sources=list(self.admission.progress.values()),
            verdict=verdict.tobytes(),
            change=change.tobytes(),
            clusters=self.judged.cluster[clustered].astype("<i8").tobytes(),
            superseded=[Superseded(place[each.row], each.anchor) for each in self.judged.superseded],
            skipped=[(place[row], mask) for row, mask in self.judged.skipped.items()],
        )

    def verdicts(self) -> Iterator[tuple[int, bytes | None, VerdictRecord]]:
        """Source partition, message key and verdict of every admitted page, in journal order."""
        batch, judged, journal = self.batch, self.judged, self.genesis.journal
        scheme, width = self.genesis.scheme_id, self.genesis.scheme.width // 4
        decided_at: dict[int, str] = {}
        similarity: dict[int, float | None] = {}
        columns = zip(
            batch.page.tolist(),
            batch.time.tolist(),
            batch.fingerprint.tolist(),
            _hashes(batch.text_hash),
            batch.offset.tolist(),
            _times(batch.fetched_at),
            batch.source.tolist(),
            judged.verdict.tolist(),
            judged.change.tolist(),
            judged.cluster.tolist(),
            judged.other.tolist(),
            judged.distance.tolist(),
            judged.matches.tolist(),
            strict=True,
        )
        for row, (
            page, time, fingerprint, text_hash, offset, fetched_at, place,
            verdict, change, cluster, other, distance, matching,
        ) in enumerate(columns):  # fmt: skip
            source = batch.ranges[place]
            if time not in decided_at:
                decided_at[time] = rfc3339(time)
            if matching not in similarity:
                similarity[matching] = self.rule.similarity(matching)
            fingerprinted = verdict <= Verdict.RECRAWL
            yield (
                source.partition,
                batch.key[row],
                VerdictRecord(
                    id=show(journal, page),
                    url=batch.url[row],
                    verdict=_VERDICTS[verdict],
                    change=_CHANGES[change],
                    cluster=show(journal, cluster) if cluster >= 0 else None,
                    duplicate_of=PageRef(judged.other_url[row], show(journal, other)) if other >= 0 else None,
                    distance=distance if other >= 0 else None,
                    similarity=similarity[matching] if other >= 0 else None,
                    fingerprint=f"{fingerprint:0{width}x}" if fingerprinted else None,
                    text_hash=text_hash,
                    scheme=scheme,
                    source=Source(source.topic, source.topic_id, source.partition, offset),
                    fetched_at=fetched_at,
                    decided_at=decided_at[time],
                    reason=batch.reason[row],
                ),
            )

    def clusters(self) -> Iterator[ClusterRecord]:
        """What becomes of anchors: the changes for the `clusters` topic."""
        journal = self.genesis.journal
        for each in self.judged.superseded:
            yield ClusterRecord(
                cluster=show(journal, each.page),
                url=each.url,
                state="superseded",
                by=show(journal, int(self.batch.page[each.row])),
                decided_at=rfc3339(int(self.batch.time[each.row])),
            )


class Judge:
    """Decides journal records against a state, and applies decisions to it."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        self.state, self.genesis = state, genesis
        self.rule = Rule(genesis.options, genesis.scheme)

    def decide(self, entries: Sequence[Entry]) -> Decided:
        """What these journal records, the next ones, are judged to be; changes nothing."""
        admission = Admission()
        admitted = [self.state.ledger.admit(entry.rows, admission) for entry in entries]
        batch = Batch.of(entries, admitted, self.state.meta.time)
        return Decided(
            self.genesis,
            entries,
            batch,
            decide(batch, self.state, self.rule),
            admission,
            self.rule,
            max(self.state.meta.time, *(entry.time for entry in entries)),
        )

    def apply(self, entries: Sequence[Entry], decisions: Decisions, decided: int = 0) -> None:
        """Take over decisions about exactly these records; `decided` is the next decisions offset.

        Raises StateError if they do not fit.
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
        batch, admitted = _admitted_batch(entries, verdict, self.state.meta.time)
        rank = np.cumsum(admitted) - 1
        verdict = verdict[admitted]
        cluster = batch.page.copy()
        cluster[np.isin(verdict, _CLUSTERED)] = np.frombuffer(decisions.clusters, "<i8")
        self.state.apply(
            batch,
            Step(
                end=decisions.end,
                last=decisions.last,
                time=decisions.time,
                decided=decided,
                sources=decisions.sources,
                verdict=verdict,
                cluster=cluster,
                superseded=np.array([each.anchor for each in decisions.superseded], np.int64),
                skipped={int(rank[row]): mask for row, mask in decisions.skipped},
            ),
        )


def _admitted_batch(
    entries: Sequence[Entry], verdict: NDArray[np.uint8], log_time: int
) -> tuple[Batch, NDArray[np.bool_]]:
    admitted = verdict != 0
    sizes = np.cumsum([len(entry.rows) for entry in entries])[:-1]
    return Batch.of(entries, np.split(admitted, sizes), log_time), admitted


def _times(column: NDArray[np.int64]) -> list[str | None]:
    """RFC 3339 times of milliseconds since the epoch, None for NO_TIME."""
    known = column != NO_TIME
    moments = np.where(known, column, 0).astype("datetime64[ms]")
    written = np.datetime_as_string(moments, unit="ms", timezone="UTC").tolist()
    return [time if is_known else None for time, is_known in zip(written, known.tolist(), strict=True)]


def _hashes(column: NDArray[np.uint8]) -> list[str | None]:
    """Hex digits of each (16,) hash, None for NO_HASH."""
    digits = column.tobytes().hex()
    blank = NO_HASH.hex()
    found = (digits[i : i + 32] for i in range(0, len(digits), 32))
    return [None if each == blank else each for each in found]
