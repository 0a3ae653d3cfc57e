"""Audits on the live topics that every page has exactly one verdict, by counting records (rule 17).

On purpose, the audit shares no code with the judge and reads pages and verdicts like any consumer.
`stream.roles.auditor.recompute` is the complementary check, in which the judge decides the whole journal
again.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.decided_sources import DecidedSources
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import hidden_records
from stream.kafka.reader import RECORDS_AT_ONCE, TopicReader
from stream.kafka.verdict_values import VerdictReader
from stream.messages.decision import SourceProgress
from stream.messages.journal import LOAD
from stream.roles.auditor.audited import NO_LIMIT, AuditedPages, Limits, PartitionPages, RowPages
from stream.settings import Settings

GENESIS_SECONDS: Final = 10.0
EXAMPLES: Final = 10
"""Maximum number of findings of each kind that are listed."""
WAIT_SECONDS: Final = 1.0
"""Interval at which the decisions are read on while the audit waits for the judge."""
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
    rows: int = 0
    """How many of the pages are loaded rows whose manifest was given."""
    missing: int = 0
    """Pages that were judged, but have no verdict."""
    waiting: int = 0
    """Pages without a verdict that the judge had not come to before the verdicts were read."""
    hidden: int = 0
    """Pages that were judged, and whose verdicts an open transaction hides."""
    waiting_since: int | None = None
    """When the oldest of the waiting pages was published, in milliseconds since the epoch; None for rows."""
    trimmed: int = 0
    """Pages whose verdicts the retention of the verdicts deleted, so that they cannot be checked."""
    superseded: int = 0
    """Pages whose verdicts compaction of the verdicts may have removed, so that they cannot be checked."""
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
    hidden_by: list[str] = field(default_factory=list)
    """Which records open transactions hide."""

    @property
    def clean(self) -> bool:
        """Whether every page has exactly one verdict, and none was lost."""
        return not (self.waiting or self.hidden or self.faults)

    @property
    def faults(self) -> int:
        """Number of findings that no waiting mends."""
        return self.missing + self.repeated + self.unexplained + self.lost


@clients.with_translated_errors
async def audit(
    settings: Settings,
    progress: Callable[[str, int], None] = lambda *_: None,
    rows: Mapping[str, int] | None = None,
    *,
    wait_seconds: float = 0.0,
    report_waiting: Callable[[int], None] = lambda _: None,
) -> Findings:
    """Read both topics up to their current ends, and compare them page by page.

    `progress` is called with the topic and the number of records read so far. `rows` maps the digests of
    loaded rows to their numbers; each row is a page, too. For up to `wait_seconds`, the audit waits for the
    judge to decide the pages that were there when it began, and calls `report_waiting` with their number.
    """
    names, findings = TopicNames(settings.namespace), Findings()
    async with broker_metadata.connect(settings) as client:
        topic_id = await broker_metadata.topic_id(client, names.pages)
        configs = await broker_metadata.topic_configs(client, [names.pages, names.verdicts])
    compacts = {topic: "compact" in config["cleanup.policy"] for topic, config in configs.items()}
    # Read decisions before verdicts: what is decided by then must have a verdict among those read later.
    decided = _Decided(settings, names)
    await decided.read_on()
    # Read pages before verdicts: verdicts on pages that arrive later are beyond the masks and ignored.
    pages = await _pages(settings, names.pages, topic_id, decided.expected, progress)
    of_rows = {digest: RowPages(digest, count) for digest, count in (rows or {}).items()}
    audited = [*pages.values(), *of_rows.values()]
    await _wait(decided, audited, wait_seconds, report_waiting)
    expected = dict(decided.expected)
    holes = {p: _Holes() for p in pages}
    judged = _JudgedOffsets()
    hiding = set[int]()

    def note_hiding(bounds: Mapping[int, LogBounds]) -> None:
        hiding.update(partition for partition, each in bounds.items() if each.stable < each.end)

    reader = VerdictReader(settings)
    # Close the generator, and thereby its consumer, also if decoding a record fails.
    async with aclosing(committed_records(settings, names.verdicts, progress, note_hiding)) as records:
        async for record in records:
            verdict = _decode(record, reader.json(record))
            findings.verdicts[verdict.verdict] += 1
            source = verdict.source
            if source.topic == LOAD:
                loaded = of_rows.get(source.topic_id)
                if loaded is None:
                    findings.loaded += 1
                    continue
                if source.offset < len(loaded.verdicts):
                    loaded.verdicts[source.offset] += 1
                else:
                    findings.unexplained += 1
            elif source.topic_id != topic_id or source.partition not in pages:
                findings.earlier += source.topic_id != topic_id
                continue
            else:
                of_pages = pages[source.partition]
                place = source.offset - of_pages.start
                if place < 0:
                    findings.earlier += 1
                elif place < len(of_pages.verdicts):
                    of_pages.verdicts[place] += 1
                    if of_pages.verdicts[place] == 1 and not of_pages.present[place]:
                        holes[source.partition].add(verdict, record.key)
            judged.add(source, record.partition)
    await _explain(settings, findings, names.pages, holes, progress, compacts=compacts[names.pages])
    async with broker_metadata.connect(settings) as client:
        await _refuse_recreated(client, names.pages, topic_id)
        # After all verdicts were read: what retention deleted meanwhile is below these.
        bounds = await broker_metadata.log_bounds(client, [names.pages, names.verdicts])
    findings.hidden_by = await hidden_records(settings, names.pages, names.decisions, names.verdicts)
    for partition, of_pages in pages.items():
        of_pages.remove_without_verdict_below(bounds[TopicPartition(names.pages, partition)].start)
    starts = {key.partition: bound.start for key, bound in bounds.items() if key.topic == names.verdicts}
    keys = [key for each in audited for key in each.partitions]
    trimmed, visible = judged.limits(keys, starts), judged.visible(keys, hiding, len(starts))
    for each in audited:
        hidden = _missing(each, expected, trimmed) & ~each.below(visible)
        _list(findings, "hidden", each.where, each.start + np.flatnonzero(hidden))
        each.remove(hidden)
    if compacts[names.verdicts]:
        for rows_of_directory in of_rows.values():  # their keys are in files that an audit does not read
            findings.superseded += rows_of_directory.remove(_missing(rows_of_directory, expected, trimmed))
        without = {p: _missing(each, expected, trimmed) for p, each in pages.items()}
        for partition, mask in (await _superseded(settings, names, pages, without, progress)).items():
            findings.superseded += pages[partition].remove(mask)
    for each in audited:
        _compare(findings, each, expected, trimmed)
    findings.rows = sum(len(each.present) for each in of_rows.values())
    for partition, of_pages in pages.items():
        _list(findings, "unexplained", of_pages.where, np.sort(holes[partition].offset))
    waiting = (each.published_at(expected.get((topic_id, p), 0)) for p, each in pages.items())
    findings.waiting_since = min((moment for moment in waiting if moment is not None), default=None)
    findings.lost = sum(each.lost for each in await decided.read_on())
    return findings


async def _wait(
    decided: _Decided,
    audited: Sequence[AuditedPages],
    seconds: float,
    report_waiting: Callable[[int], None],
) -> None:
    """Read decisions until all of these pages are judged, for at most `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        waiting = sum(int((each.present & ~each.below(decided.expected)).sum()) for each in audited)
        report_waiting(waiting)
        if not waiting:
            return
        await asyncio.sleep(min(WAIT_SECONDS, max(0.0, end - time.monotonic())))
        await decided.read_on()


class _JudgedOffsets:
    """The lowest offset of a page that has a verdict, by source partition and partition of the verdicts; and
    the highest one."""

    def __init__(self) -> None:
        self._offset: dict[tuple[str, int], dict[int, int]] = {}
        self._last: dict[tuple[str, int], int] = {}

    def add(self, source: PageSource, partition: int) -> None:
        """Add a verdict, which is in this partition of the verdicts."""
        offsets = self._offset.setdefault((source.topic_id, source.partition), {})
        offsets[partition] = min(source.offset, offsets.get(partition, source.offset))
        key = source.topic_id, source.partition
        self._last[key] = max(source.offset, self._last.get(key, 0))

    def limits(
        self, partitions: Iterable[tuple[str, int]], starts: Mapping[int, int]
    ) -> dict[tuple[str, int], int]:
        """Return source partition -> the offset below which a verdict may have been deleted by retention.

        `starts` are the log starts of the verdicts. Verdicts of a source partition are ordered by offset, in
        the partition of the same number modulo the number of partitions, which may have grown.
        """
        limits = {}
        for key in partitions:
            home, offsets = key[1] % len(starts), self._offset.get(key, {})
            trimmed = {number for width in range(1, len(starts) + 1) if starts[number := key[1] % width]}
            if not trimmed:
                continue
            if home in offsets:
                limits[key] = offsets[home]
            elif home in trimmed:
                limits[key] = NO_LIMIT
            elif offsets:  # of a time with fewer partitions
                limits[key] = max(offsets.values())
        return limits

    def visible(
        self, partitions: Iterable[tuple[str, int]], hiding: Collection[int], width: int
    ) -> dict[tuple[str, int], int]:
        """Return source partition -> the offset up to which no verdict is hidden.

        `hiding` are those of the `width` partitions of the verdicts that hide their last records.
        """
        return {
            key: self._last.get(key, -1) + 1 if key[1] % width in hiding else NO_LIMIT for key in partitions
        }


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
    if await broker_metadata.topic_id(client, topic) != topic_id:
        raise TopicError(f"topic {topic} was recreated while it was read: audit it again")


async def _pages(
    settings: Settings,
    topic: str,
    topic_id: str,
    expected: Limits,
    progress: Callable[[str, int], None],
) -> dict[int, PartitionPages]:
    """Return partition -> its pages, from the log start on."""
    pages: dict[int, PartitionPages] = {}

    def bounds(of: Mapping[int, LogBounds]) -> None:
        pages.update({p: PartitionPages(topic_id, p, of[p].start, of[p].stable) for p in sorted(of)})

    async for record in committed_records(settings, topic, progress, bounds):
        partition = record.partition
        pages[partition].add(record.offset, record.timestamp, expected.get((topic_id, partition), 0))
    return pages


async def committed_records(
    settings: Settings,
    topic: str,
    progress: Callable[[str, int], None] = lambda *_: None,
    report_bounds: Callable[[Mapping[int, LogBounds]], None] = lambda _: None,
) -> Any:
    """Yield all records of a topic up to its current end that are committed and that no open transaction
    hides. `report_bounds` is called with the log bounds of each partition."""
    consumer = clients.reader(settings, auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20)
    async with clients.open_client(settings, consumer):
        async with broker_metadata.connect(settings) as client:
            topic_id = await broker_metadata.topic_id(client, topic)
            bounds = await broker_metadata.log_bounds(client, [topic])
        report_bounds({key.partition: bound for key, bound in bounds.items()})
        consumer.assign(list(bounds))
        open_ones = {key for key, bound in bounds.items() if bound.start < bound.stable}
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
            open_ones = {key for key in open_ones if await consumer.position(key) < bounds[key].stable}


class _Decided:
    """How far each source was judged, by the last decision about it. A log that was trimmed starts with a
    ledger record, which has all sources."""

    def __init__(self, settings: Settings, names: TopicNames) -> None:
        self._settings, self._topic = settings, names.decisions
        self._position: int | None = None
        self._last: dict[tuple[str, str, int], SourceProgress] = {}
        self.expected: dict[tuple[str, int], int] = {}
        """Topic id or digest, and partition -> the next offset to judge."""

    async def read_on(self) -> list[SourceProgress]:
        """Read the decisions since the last call, up to the present end, and return the progress of each
        source."""
        async with TopicReader(self._settings, self._topic, self._position or 0) as reader:
            decided = DecidedSources(reader)
            if self._position is None:
                await decided.begin()
            end = (await reader.bounds()).stable
            while reader.position < end:
                for source in await decided.poll():
                    self._last[source.cluster, source.topic_id, source.partition] = source
                    self.expected[source.topic_id, source.partition] = source.expected
            self._position = reader.position
        return list(self._last.values())


def _decode(record: Any, value: bytes) -> AuditedVerdict:
    try:
        return msgspec.json.decode(value, type=AuditedVerdict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{record.topic}[{record.partition}] offset {record.offset}: {error}") from error


def _missing(pages: AuditedPages, expected: Limits, trimmed: Limits) -> NDArray[np.bool_]:
    """Return the mask (n,) of pages that were judged and have no verdict, although retention spared it."""
    missing: NDArray[np.bool_] = pages.present & (pages.verdicts == 0)
    return missing & pages.below(expected) & ~pages.below(trimmed)


async def _superseded(
    settings: Settings,
    names: TopicNames,
    pages: Mapping[int, PartitionPages],
    without: Mapping[int, NDArray[np.bool_]],
    progress: Callable[[str, int], None],
) -> dict[int, NDArray[np.bool_]]:
    """Return partition -> those of the pages `without` a verdict, as a mask, that have no key or whose key
    has the verdict of another page: not of an earlier one in their partition, which would have gone first."""
    keys = {partition: np.zeros(len(mask), np.uint64) for partition, mask in without.items()}
    if not any(mask.any() for mask in without.values()):
        return {}
    async with aclosing(committed_records(settings, names.pages, progress)) as records:
        async for record in records:
            mask, place = without[record.partition], record.offset - pages[record.partition].start
            if 0 <= place < len(mask) and mask[place]:
                keys[record.partition][place] = _digest(record.key)
    kept = _KeptVerdicts(np.unique(np.concatenate([keys[p][mask] for p, mask in without.items()])))
    reader = VerdictReader(settings)
    async with aclosing(committed_records(settings, names.verdicts, progress)) as records:
        async for record in records:
            if (place := kept.place(record.key)) is not None:
                source = _decode(record, reader.json(record)).source
                of_topic = source.topic_id == next(iter(pages.values())).topic_id
                kept.partition[place] = source.partition if of_topic else _ANOTHER_TOPIC
                kept.offset[place] = source.offset
    return {
        partition: mask & kept.explain(partition, keys[partition], pages[partition].start)
        for partition, mask in without.items()
    }


_ANOTHER_TOPIC: Final = 1 << 31
"""Partition of pages that are on no partition of the topic, such as loaded rows."""


class _KeptVerdicts:
    """The last verdict of each of some keys: the partition and offset of its page."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        """`keys` are digests, ascending."""
        self._keys = keys
        self.partition = np.full(len(keys), -1, np.int64)
        """(n,): -1 for a key without any."""
        self.offset = np.zeros(len(keys), np.int64)
        """(n,)"""

    def place(self, key: bytes | None) -> int | None:
        """Return the place of a key, or None if it is none of them."""
        digest = np.uint64(_digest(key))
        place = int(np.searchsorted(self._keys, digest))
        return place if place < len(self._keys) and self._keys[place] == digest else None

    def explain(self, partition: int, keys: NDArray[np.uint64], start: int) -> NDArray[np.bool_]:
        """Return the mask (n,) of those pages from offset `start` on whose verdict another one replaced."""
        places = np.searchsorted(self._keys, keys).clip(0, len(self._keys) - 1)
        later = self.offset[places] > start + np.arange(len(keys))
        elsewhere = (self.partition[places] >= 0) & (self.partition[places] != partition)
        replaced: NDArray[np.bool_] = (
            (keys == _NO_KEY) | elsewhere | ((self.partition[places] == partition) & later)
        )
        return replaced


def _compare(findings: Findings, pages: AuditedPages, expected: Limits, trimmed: Limits) -> None:
    """Count pages against their numbers of verdicts."""
    findings.pages += pages.count
    without, missing = pages.present & (pages.verdicts == 0), _missing(pages, expected, trimmed)
    judged = without & pages.below(expected)
    findings.waiting += int((without & ~judged).sum())
    findings.trimmed += int((judged & ~missing).sum())
    _list(findings, "missing", pages.where, pages.start + np.flatnonzero(missing))
    _list(findings, "repeated", pages.where, pages.start + np.flatnonzero(pages.verdicts > 1))
    findings.repeated += int(np.maximum(pages.verdicts.astype(np.int64) - 2, 0).sum())


def _list(findings: Findings, kind: str, where: str, offsets: NDArray[np.int64]) -> None:
    """Count offsets, and list the first of them."""
    setattr(findings, kind, getattr(findings, kind) + len(offsets))
    for offset in offsets[:EXAMPLES].tolist():
        findings.examples.append(f"{kind}: {where} {offset}")
