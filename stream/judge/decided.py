"""What a judge made of some journal records, as it is published.

Every page gets a verdict of half a kilobyte, which makes writing them a large part of a judge's work: their
JSON is written column by column here. `msgspec` reads it back as `VerdictRecord`, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import NO_HASH
from stream.judge.batch import Batch, Entry
from stream.judge.decide import Judged
from stream.judge.ids import INDEX_BITS, INDEX_MASK, show
from stream.judge.ledger import Admission
from stream.judge.rule import Rule
from stream.messages.decision import Decisions, Superseded
from stream.messages.journal import NO_TIME, Genesis, SourceRange
from stream.messages.verdict import VERSION, Change, ClusterRecord, Verdict, VerdictRecord, rfc3339

CLUSTERED: Final = (Verdict.DUPLICATE, Verdict.RECRAWL)
"""Verdicts that join the cluster of an earlier page."""
_CHANGES: Final = {each.value: "null" if each is Change.NONE else f'"{each.name.lower()}"' for each in Change}
_VERDICTS: Final = {
    (verdict.value, change): f',"verdict":"{verdict.name.lower()}","change":{written},"cluster":'
    for verdict in Verdict
    for change, written in _CHANGES.items()
}
_ALONE: Final = ',"duplicate_of":null,"distance":null,"similarity":null,"fingerprint":'


@dataclass(frozen=True, slots=True, eq=False)
class SourceVerdicts:
    """Verdicts of n pages of one source range, in journal order."""

    source: SourceRange
    first: int
    """Row of the first of them in the batch."""
    verdict: list[int]
    """Codes of `Verdict`."""
    key: list[bytes | None]
    """Keys of the page messages."""
    value: list[bytes]
    """JSON of `VerdictRecord`."""


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
        clustered = np.isin(self.judged.verdict, CLUSTERED)
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

    def messages(self) -> Iterator[SourceVerdicts]:
        """What goes to the `verdicts` topic: every admitted page's verdict, in journal order."""
        batch = self.batch
        values = self._values()
        verdict = self.judged.verdict.tolist()
        edges = np.flatnonzero(np.diff(batch.source, prepend=-1, append=-1)).tolist()
        for first, last in pairwise(edges):
            source = batch.ranges[int(batch.source[first])]
            rows = slice(first, last)
            yield SourceVerdicts(source, first, verdict[rows], batch.key[rows], values[rows])

    def verdicts(self) -> Iterator[VerdictRecord]:
        """The same verdicts as values."""
        return map(_RECORD.decode, self._values())

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

    def _values(self) -> list[bytes]:
        """JSON of every verdict."""
        batch, judged, scheme = self.batch, self.judged, self.genesis.scheme_id
        journal = self.genesis.journal[:8]
        sources = [
            f',"scheme":"{scheme}","source":{{"topic":{encode_basestring(each.topic)},'
            f'"topic_id":"{each.topic_id}","partition":{each.partition},"offset":'
            for each in batch.ranges
        ]
        times = {time: f',"decided_at":"{rfc3339(time)}","reason":' for time in set(batch.time.tolist())}
        columns = zip(
            batch.page.tolist(),
            batch.url,
            judged.verdict.tolist(),
            judged.change.tolist(),
            judged.cluster.tolist(),
            judged.other.tolist(),
            judged.distance.tolist(),
            judged.similarity.tolist(),
            _hex(batch.fingerprint, self.genesis.scheme.width // 4),
            _hashes(batch.text_hash),
            batch.source.tolist(),
            batch.offset.tolist(),
            _times(batch.fetched_at),
            batch.time.tolist(),
            batch.reason,
            strict=True,
        )
        published = {each: self._published(each) for each in set(judged.similarity.tolist())}
        begin = f'{{"v":{VERSION},"id":"'
        values: list[str] = []
        for row, (
            page, url, verdict, change, cluster, other, distance, similarity, fingerprint, text_hash, source,
            offset, fetched_at, time, reason,
        ) in enumerate(columns):  # fmt: skip
            name = f"{journal}.{page >> INDEX_BITS}.{page & INDEX_MASK}"
            where = "null" if url is None else encode_basestring(url)
            if other >= 0:
                cluster_name = f'"{show(journal, cluster)}"'
                other_url = encode_basestring(judged.other_url[row])
                compared = (
                    f',"duplicate_of":{{"url":{other_url},"id":"{show(journal, other)}"}}'
                    f',"distance":{distance}{published[similarity]},"fingerprint":{fingerprint}'
                )
            elif verdict == Verdict.UNIQUE:
                cluster_name, compared = f'"{name}"', f"{_ALONE}{fingerprint}"
            else:
                cluster_name, compared = "null", f"{_ALONE}null"
            why = "null" if reason is None else encode_basestring(reason)
            values.append(
                f'{begin}{name}","url":{where}{_VERDICTS[verdict, change]}{cluster_name}{compared}'
                f',"text_hash":{text_hash}{sources[source]}{offset}}},"fetched_at":{fetched_at}{times[time]}{why}}}'
            )
        return [value.encode() for value in values]

    def _published(self, similarity: int) -> str:
        value = self.rule.published(similarity)
        return f',"similarity":{"null" if value is None else _number(value)}'


_RECORD: Final = msgspec.json.Decoder(VerdictRecord)


def _number(value: float) -> str:
    return msgspec.json.encode(value).decode()


def _hex(column: NDArray[np.uint64], digits: int) -> list[str]:
    """Quoted hex digits of every fingerprint."""
    written = column.astype(">u8").tobytes().hex()
    size = 16 * column[:1].size or 16
    return [f'"{written[end - digits : end]}"' for end in range(size, len(written) + 1, size)]


def _times(column: NDArray[np.int64]) -> list[str]:
    """Quoted RFC 3339 times of milliseconds since the epoch, null for NO_TIME."""
    known = column != NO_TIME
    moments = np.where(known, column, 0).astype("datetime64[ms]")
    written = np.datetime_as_string(moments, unit="ms", timezone="UTC").tolist()
    return [
        f'"{time}"' if is_known else "null" for time, is_known in zip(written, known.tolist(), strict=True)
    ]


def _hashes(column: NDArray[np.uint8]) -> list[str]:
    """Quoted hex digits of each (16,) hash, null for NO_HASH."""
    digits = column.tobytes().hex()
    blank = NO_HASH.hex()
    found = (digits[i : i + 32] for i in range(0, len(digits), 32))
    return ["null" if each == blank else f'"{each}"' for each in found]
