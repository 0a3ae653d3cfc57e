"""A judged batch in the forms in which it is published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.judge.batch import Batch, Entry
from stream.judge.decision.decide import BatchVerdicts
from stream.judge.ids import NO_PAGE, show
from stream.judge.rule import Rule
from stream.judge.state.ledger import Admission
from stream.judge.verdict_json_compiled import JsonColumns, columns, write
from stream.messages.decision import (
    CHANGE_SHIFT,
    JUDGED_AGAIN,
    NAMES_NEAREST,
    OF_ANOTHER_CLUSTER,
    Decisions,
    SupersededAnchor,
)
from stream.messages.journal import Genesis
from stream.messages.verdict import CLUSTERED, ClusterRecord, Verdict, VerdictRecord
from stream.pages.times import rfc3339
from stream.tables.arrays import is_among


@dataclass(frozen=True, slots=True, eq=False)
class JudgedBatch:
    """A judged batch of journal records."""

    genesis: Genesis
    entries: Sequence[Entry]
    batch: Batch
    verdicts: BatchVerdicts
    admission: Admission
    rule: Rule
    log_time: int
    """Log time after the last record, in milliseconds since the epoch."""
    cap: int | None
    """What append times count at most for it, where that binds (rule 15)."""

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of pages, for the verdicts that occur."""
        counts = np.bincount(self.verdicts.columns.verdict).tolist()
        return {Verdict(code).name.lower(): count for code, count in enumerate(counts) if count}

    @property
    def crowding(self) -> dict[str, int]:
        """Number of pages with full buckets alone (rule 16), and of those with more candidates within the
        distance than were compared (rule 18). Anchors that are like them may be missed."""
        return {
            "full_buckets": int(np.count_nonzero(self.verdicts.full)),
            "cut_lists": int(np.count_nonzero(self.verdicts.cut)),
        }

    @property
    def judged_again(self) -> NDArray[np.bool_]:
        """Of each page, whether it was an orphan (rule 22)."""
        verdicts = self.verdicts.columns
        return np.asarray((verdicts.verdict == Verdict.RECRAWL) & (verdicts.stored_as != 0))

    @property
    def orphans(self) -> dict[str, int]:
        """Number of orphans that became anchors, and of those that joined the cluster of another one."""
        again = self.judged_again
        anchors = int(np.count_nonzero(again & (self.verdicts.columns.cluster == self.batch.page)))
        return {"anchor": anchors, "member": int(np.count_nonzero(again)) - anchors}

    def record(self) -> Decisions:
        """Return the record for the `decisions` topic."""
        total = sum(len(entry.rows) for entry in self.entries)
        codes, verdicts = np.zeros(total, np.uint8), self.verdicts.columns
        clustered = is_among(verdicts.verdict, CLUSTERED)
        apart = clustered & (verdicts.cluster != verdicts.other)
        nearest = (verdicts.verdict == Verdict.UNIQUE) & (verdicts.other != NO_PAGE)
        codes[self.batch.place] = (
            verdicts.verdict
            | verdicts.change << CHANGE_SHIFT
            | apart * np.uint8(OF_ANOTHER_CLUSTER)
            | self.judged_again * np.uint8(JUDGED_AGAIN)
            | nearest * np.uint8(NAMES_NEAREST)
        )
        similarity = verdicts.similarity[clustered][: 0 if self.genesis.options.strict else None]
        place = self.batch.place.tolist()
        return Decisions(
            journal=self.genesis.journal,
            options=self.genesis.options.id,
            start=self.entries[0].offset,
            end=self.entries[-1].offset + 1,
            last=self.entries[-1].digest,
            time=self.log_time,
            cap=self.cap,
            sources=list(self.admission.progress.values()),
            ledger=None,
            codes=codes.tobytes(),
            other=verdicts.other[clustered].astype("<i8").tobytes(),
            distance=verdicts.distance[clustered].astype(np.uint8).tobytes(),
            numbers=verdicts.number[clustered].astype("<i8").tobytes(),
            similarity=similarity.astype("<u2").tobytes(),
            clusters=verdicts.cluster[apart].astype("<i8").tobytes(),
            anchors=verdicts.anchor[apart].astype("<i8").tobytes(),
            nearest=verdicts.other[nearest].astype("<i8").tobytes(),
            nearest_numbers=verdicts.number[nearest].astype("<i8").tobytes(),
            nearest_similarity=verdicts.similarity[nearest].astype("<u2").tobytes(),
            superseded=[SupersededAnchor(place[each.row], each.anchor) for each in self.verdicts.superseded],
            skipped=[(place[row], mask) for row, mask in self.verdicts.skipped.items()],
        )

    def columns(self) -> JsonColumns:
        """Return the fields of the verdicts in columns, for `verdict_json_compiled.write`."""
        verdicts = self.verdicts
        return columns(self.batch, verdicts.columns, verdicts.other_url, self.rule, self.genesis.journal)

    def json(self) -> list[bytes]:
        """Return the verdicts of all admitted pages in JSON, in journal order."""
        return write(self.columns(), np.arange(len(self.batch))).strings()

    def verdict_records(self) -> Iterator[VerdictRecord]:
        """Yield the verdicts as decoded records."""
        return map(_RECORD.decode, self.json())

    def cluster_records(self) -> Iterator[tuple[ClusterRecord, bytes]]:
        """Yield the records for the `clusters` topic, one per superseded anchor, with the digests of their
        URL keys."""
        journal, superseded = self.genesis.journal, self.verdicts.superseded
        digests = self.batch.url_digests(np.array([each.row for each in superseded], np.int64))
        for each, digest in zip(superseded, digests, strict=True):
            record = ClusterRecord(
                cluster=show(journal, each.page),
                url=each.url,
                state="superseded",
                by=show(journal, int(self.batch.page[each.row])),
                decided_at=rfc3339(int(self.batch.time[each.row])),
            )
            yield record, digest


_RECORD: Final = msgspec.json.Decoder(VerdictRecord)
