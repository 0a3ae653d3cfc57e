"""Audits on the live topics that every page has exactly one verdict, by counting records (rule 17).

On purpose, the audit shares no code with the judge and reads pages and verdicts like any consumer.
`stream.roles.auditor.recompute` is the complementary check, in which the judge decides the whole journal
again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import xxhash
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from numpy.typing import NDArray

from stream.errors import RecordError, TopicError
from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.names import TopicNames
from stream.kafka.reader import RECORDS_AT_ONCE, TopicReader
from stream.kafka.verdict_values import VerdictReader
from stream.messages.decision import SourceProgress, decode_decisions
from stream.messages.journal import LOAD
from stream.settings import Settings

GENESIS_SECONDS: Final = 10.0
EXAMPLES: Final = 10
"""Maximum number of findings of each kind that are listed."""
ROUNDS: Final = 3
"""How often pages are read again to explain holes. A second round is needed only if newer versions arrive and
are compacted, while the first one is under way."""
_NO_KEY: Final = 0
"""Digest of a message without a key."""


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
    reason: str | None = None


@dataclass(slots=True)
class Findings:
    """The result of an audit."""

    pages: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    """Pages without a verdict."""
    waiting: int = 0
    """How many of the missing the judge had not come to when the audit began."""
    repeated: int = 0
    """Verdicts beyond the first one of a page."""
    unexplained: int = 0
    """Verdicts of the current topic for an offset above the log start that has no page, and had none that
    compaction removed."""
    earlier: int = 0
    """Verdicts of deleted pages, of an earlier topic with the same name or below the log start."""
    compacted: int = 0
    """Verdicts of pages that compaction removed."""
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
        configs = await broker_metadata.topic_configs(client, [names.pages])
    compacts = "compact" in configs[names.pages]["cleanup.policy"]
    # Read decisions before verdicts: what is decided by then must have a verdict among those read later.
    decided = _Decided(settings, names)
    sources = await decided.read_on()
    expected = {each.partition: each.expected for each in sources if each.topic_id == topic_id}
    # Read pages before verdicts: verdicts on pages that arrive later are beyond the masks and ignored.
    pages, starts = await _pages(settings, names.pages, progress)
    seen = {p: np.zeros(len(present), np.uint16) for p, present in pages.items()}
    holes = {p: _Holes() for p in pages}
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
                if seen[source.partition][place] == 1 and not pages[source.partition][place]:
                    holes[source.partition].add(verdict, record.key)
    await _explain(settings, findings, names.pages, holes, progress, compacts=compacts)
    async with broker_metadata.connect(settings) as client:
        await _refuse_recreated(client, names.pages, topic_id)
    for partition, present in pages.items():
        where = f"partition {partition} offset"
        _compare(findings, where, starts[partition], present, seen[partition])
        undecided = max(0, expected.get(partition, 0) - starts[partition])
        findings.waiting += int((present & (seen[partition] == 0))[undecided:].sum())
        _list(findings, "unexplained", where, np.sort(holes[partition].offset))
    for digest, verdicts in seen_rows.items():
        _compare(findings, f"rows {digest} number", 0, np.ones(len(verdicts), bool), verdicts)
    findings.lost = sum(each.lost for each in await decided.read_on())
    return findings


@dataclass(slots=True)
class _Holes:
    """Offsets of a partition that have a verdict and no page, with what may explain them: 17 bytes each."""

    _offset: array[int] = field(default_factory=lambda: array("q"))
    _key: array[int] = field(default_factory=lambda: array("Q"))
    _tombstone: array[int] = field(default_factory=lambda: array("b"))

    def add(self, verdict: AuditedVerdict, key: bytes | None) -> None:
        """Add a verdict with the key of its message, which is the key of the page."""
        self._offset.append(verdict.source.offset)
        self._key.append(_digest(key))
        self._tombstone.append(verdict.reason == "empty_message")

    def __len__(self) -> int:
        return len(self._offset)

    @property
    def offset(self) -> NDArray[np.int64]:
        """(n,)"""
        return np.array(self._offset, np.int64)

    @property
    def key(self) -> NDArray[np.uint64]:
        """(n,): digest of the page's key."""
        return np.array(self._key, np.uint64)

    @property
    def tombstone(self) -> NDArray[np.bool_]:
        """(n,): whether the page had no value, so that compaction removes it, too."""
        return np.array(self._tombstone, bool)

    def remove(self, explained: NDArray[np.bool_]) -> int:
        """Remove the holes in a mask (n,), and return how many they are."""
        left, keys, tombstones = (column[~explained] for column in (self.offset, self.key, self.tombstone))
        self._offset = array("q", left.tobytes())
        self._key = array("Q", keys.tobytes())
        self._tombstone = array("b", tombstones.tobytes())
        return int(explained.sum())


class _NewestVersions:
    """The last offset of each key that a hole has."""

    def __init__(self, holes: _Holes) -> None:
        self._keys = np.unique(holes.key)
        self._offset = np.full(len(self._keys), -1, np.int64)
        tombstones = holes.tombstone
        places = np.searchsorted(self._keys, holes.key[tombstones])
        np.maximum.at(self._offset, places, holes.offset[tombstones])

    def add(self, key: bytes | None, offset: int) -> None:
        """Add a page of the partition."""
        digest = np.uint64(_digest(key))
        place = int(np.searchsorted(self._keys, digest))
        if place < len(self._keys) and self._keys[place] == digest:
            self._offset[place] = max(int(self._offset[place]), offset)

    def explain(self, holes: _Holes) -> NDArray[np.bool_]:
        """Return the mask (n,) of those whose page had a newer version, no value or no key."""
        newest = self._offset[np.searchsorted(self._keys, holes.key)]
        explained: NDArray[np.bool_] = (newest > holes.offset) | holes.tombstone | (holes.key == _NO_KEY)
        return explained


def _digest(key: bytes | None) -> int:
    return _NO_KEY if key is None else xxhash.xxh3_64_intdigest(key)


async def _explain(
    settings: Settings,
    findings: Findings,
    topic: str,
    holes: Mapping[int, _Holes],
    progress: Callable[[str, int], None],
    *,
    compacts: bool,
) -> None:
    """Remove the holes that retention made meanwhile, or compaction (rule 1).

    Compaction removes pages with a newer version, tombstones and pages without a key.
    """
    for _ in range(ROUNDS):
        if not any(map(len, holes.values())):
            return
        async with broker_metadata.connect(settings) as client:
            bounds = await broker_metadata.log_bounds(client, [topic])
        for partition, each in holes.items():
            findings.earlier += each.remove(each.offset < bounds[TopicPartition(topic, partition)].start)
        if not compacts:
            return
        newest = {partition: _NewestVersions(each) for partition, each in holes.items()}
        async with aclosing(committed_records(settings, topic, progress)) as records:
            async for record in records:
                if record.partition in newest:
                    newest[record.partition].add(record.key, record.offset)
        for partition, each in holes.items():
            findings.compacted += each.remove(newest[partition].explain(each))


async def _refuse_recreated(client: AIOKafkaClient, topic: str, topic_id: str) -> None:
    """Raise TopicError if the topic has another id now."""
    if (await broker_metadata.topic_ids(client, [topic]))[topic] != topic_id:
        raise TopicError(f"topic {topic} was recreated while it was read: audit it again")


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
            topic_id = (await broker_metadata.topic_ids(client, [topic]))[topic]
            committed_bounds = await broker_metadata.log_bounds(client, [topic], committed=True)
        bounds(
            {key.partition: bound.start for key, bound in committed_bounds.items()},
            {key.partition: bound.end for key, bound in committed_bounds.items()},
        )
        consumer.assign(list(committed_bounds))
        open_ones = {key for key, bound in committed_bounds.items() if bound.start < bound.end}
        read = 0
        while open_ones:
            fetched = await consumer.getmany(timeout_ms=200, max_records=RECORDS_AT_ONCE)
            for records in fetched.values():
                for record in records:
                    yield record
                read += len(records)
            if not fetched:  # the end that was known is never reached in another topic
                await _refuse_recreated(client_of(consumer), topic, topic_id)
            progress(topic, read)
            open_ones = {key for key in open_ones if await consumer.position(key) < committed_bounds[key].end}


class _Decided:
    """How far each source was judged, by the last decision about it."""

    def __init__(self, settings: Settings, names: TopicNames) -> None:
        self._settings, self._topic = settings, names.decisions
        self._position = 0
        self._last: dict[tuple[str, str, int], SourceProgress] = {}

    async def read_on(self) -> list[SourceProgress]:
        """Read the decisions since the last call, up to the present end, and return the progress of each
        source."""
        async with TopicReader(self._settings, self._topic, self._position) as reader:
            _, end = await reader.bounds()
            while reader.position < end:
                for record in await reader.poll():
                    for source in decode_decisions(record.value, record.offset).sources:
                        self._last[source.cluster, source.topic_id, source.partition] = source
            self._position = reader.position
        return list(self._last.values())


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
    _list(findings, "missing", where, start + np.flatnonzero(present & (verdicts == 0)))
    _list(findings, "repeated", where, start + np.flatnonzero(verdicts > 1))
    findings.repeated += int(np.maximum(verdicts.astype(np.int64) - 2, 0).sum())


def _list(findings: Findings, kind: str, where: str, offsets: NDArray[np.int64]) -> None:
    """Count offsets, and list the first of them."""
    setattr(findings, kind, getattr(findings, kind) + len(offsets))
    for offset in offsets[:EXAMPLES].tolist():
        findings.examples.append(f"{kind}: {where} {offset}")
