"""Audits on the live topics that every page has exactly one verdict, by counting records (rule 17).

On purpose, the audit shares no code with the judge and reads pages and verdicts like any consumer.
`stream.roles.auditor.recompute` is the complementary check, in which the judge decides the whole journal
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from aiokafka import TopicPartition
from numpy.typing import NDArray

from stream.errors import RecordError
from stream.kafka import broker_metadata, clients
from stream.kafka.names import TopicNames
from stream.kafka.reader import TopicReader
from stream.kafka.verdict_values import VerdictReader
from stream.messages.decision import decode_decisions
from stream.messages.journal import LOAD
from stream.settings import Settings

GENESIS_SECONDS: Final = 10.0
EXAMPLES: Final = 10
"""Maximum number of findings of each kind that are listed."""


class PageSource(msgspec.Struct):
    """Where the page of a verdict came from."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class AuditedVerdict(msgspec.Struct):
    """The fields of a verdict that identify its page."""

    id: str
    verdict: str
    source: PageSource


@dataclass(slots=True)
class Findings:
    """The result of an audit."""

    pages: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    """Pages without a verdict."""
    repeated: int = 0
    """Verdicts beyond the first one of a page."""
    unexplained: int = 0
    """Verdicts of the current topic for an offset above the log start that has no page."""
    earlier: int = 0
    """Verdicts of deleted pages, of an earlier topic with the same name or below the log start."""
    loaded: int = 0
    """Verdicts of loaded rows whose manifest was not given."""
    lost: int = 0
    """Offsets that retention deleted before they were read, as declared in the journal."""
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether every page has exactly one verdict, and none was lost."""
        return not (self.missing or self.repeated or self.unexplained or self.lost)


@clients.explains_errors
async def audit(
    settings: Settings,
    progress: Callable[[str, int], None] = lambda *_: None,
    rows: Mapping[str, int] | None = None,
) -> Findings:
    """Read both topics up to their current ends, and compare them page by page.

    `progress` is called with the topic and the number of records read so far. `rows` maps the digests of
    loaded rows to their numbers; each row is a page, too.
    """
    names, findings = TopicNames(settings.namespace), Findings()
    async with broker_metadata.connect(settings) as client:
        topic_id = (await broker_metadata.topic_ids(client, [names.pages]))[names.pages]
    # Read pages first: verdicts on pages that arrive later are beyond the masks and ignored.
    pages, starts = await _pages(settings, names.pages, progress)
    seen = {p: np.zeros(len(present), np.uint16) for p, present in pages.items()}
    seen_rows = {digest: np.zeros(count, np.uint16) for digest, count in (rows or {}).items()}
    reader = VerdictReader(settings)
    # Close the generator, and thereby its consumer, also if decoding a record fails.
    async with aclosing(committed_records(settings, names.verdicts, progress)) as records:
        async for record in records:
            verdict = _decode(record, reader.json(record))
            findings.verdicts[verdict.verdict] += 1
            source = verdict.source
            if source.topic == LOAD:
                of_rows = seen_rows.get(source.topic_id)
                if of_rows is None:
                    findings.loaded += 1
                elif source.offset < len(of_rows):
                    of_rows[source.offset] += 1
                else:
                    findings.unexplained += 1
                continue
            place = source.offset - starts.get(source.partition, 0)
            if source.topic_id != topic_id or place < 0:
                findings.earlier += 1
            elif source.partition in seen and place < len(seen[source.partition]):
                seen[source.partition][place] += 1
    for partition, present in pages.items():
        _compare(findings, f"partition {partition} offset", starts[partition], present, seen[partition])
    for digest, verdicts in seen_rows.items():
        _compare(findings, f"rows {digest} number", 0, np.ones(len(verdicts), bool), verdicts)
    findings.lost = await _lost(settings, names)
    return findings


async def _pages(
    settings: Settings, topic: str, progress: Callable[[str, int], None]
) -> tuple[dict[int, NDArray[np.bool_]], dict[int, int]]:
    """Return partition -> mask of the offsets with a page, from the log start on; and partition -> log
    start."""
    present: dict[int, NDArray[np.bool_]] = {}
    starts: dict[int, int] = {}

    def bounds(first: dict[int, int], end: dict[int, int]) -> None:
        starts.update(first)
        present.update({p: np.zeros(end[p] - first[p], bool) for p in first})

    async for record in committed_records(settings, topic, progress, bounds):
        place = record.offset - starts[record.partition]
        if place < len(present[record.partition]):
            present[record.partition][place] = True
    return present, starts


async def committed_records(
    settings: Settings,
    topic: str,
    progress: Callable[[str, int], None],
    bounds: Callable[[dict[int, int], dict[int, int]], None] = lambda *_: None,
) -> Any:
    """Yield all committed records of a topic up to its current end."""
    consumer = clients.consumer(
        settings,
        group_id=None,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=8 << 20,
    )
    async with clients.started(settings, consumer):
        async with broker_metadata.connect(settings) as client:
            count = (await broker_metadata.partition_counts(client, [topic]))[topic]
        partitions = [TopicPartition(topic, p) for p in range(count)]
        consumer.assign(partitions)
        first = await consumer.beginning_offsets(partitions)
        end = await consumer.end_offsets(partitions)
        bounds({p.partition: first[p] for p in partitions}, {p.partition: end[p] for p in partitions})
        open_ones = {p for p in partitions if first[p] < end[p]}
        read = 0
        while open_ones:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    yield record
                read += len(records)
            progress(topic, read)
            open_ones = {p for p in open_ones if await consumer.position(p) < end[p]}


async def _lost(settings: Settings, names: TopicNames) -> int:
    """Return the number of offsets declared lost, from the last decision about each source."""
    lost: dict[tuple[str, str, int], int] = {}
    async with TopicReader(settings, names.decisions, 0) as reader:
        _, end = await reader.bounds()
        while reader.position < end:
            for record in await reader.poll():
                for source in decode_decisions(record.value, record.offset).sources:
                    lost[source.cluster, source.topic_id, source.partition] = source.lost
    return sum(lost.values())


def _decode(record: Any, value: bytes) -> AuditedVerdict:
    try:
        return msgspec.json.decode(value, type=AuditedVerdict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{record.topic}[{record.partition}] offset {record.offset}: {error}") from error


def _compare(
    findings: Findings, where: str, start: int, present: NDArray[np.bool_], verdicts: NDArray[np.uint16]
) -> None:
    """Count pages against their numbers of verdicts. The first of both is at offset `start`."""
    findings.pages += int(present.sum())
    _list(findings, "missing", where, start, present & (verdicts == 0))
    _list(findings, "repeated", where, start, verdicts > 1)
    _list(findings, "unexplained", where, start, ~present & (verdicts > 0))
    findings.repeated += int(np.maximum(verdicts.astype(np.int64) - 2, 0).sum())


def _list(findings: Findings, kind: str, where: str, start: int, mask: NDArray[np.bool_]) -> None:
    """Count the offsets in `mask`, and list the first of them."""
    places = np.flatnonzero(mask)
    setattr(findings, kind, getattr(findings, kind) + len(places))
    for place in places[:EXAMPLES].tolist():
        findings.examples.append(f"{kind}: {where} {start + place}")
