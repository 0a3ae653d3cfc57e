"""What has become of requests to forget pages: from when it holds everywhere, and what delays it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from stream import figures
from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE, is_dashboard, is_kind, meta_of, summary_of
from stream.checkpoints.manifest import CheckpointName
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.errors import DamagedCheckpointError, RecordError, StateError
from stream.judge.forgetting import Wanted
from stream.judge.state.meta import Forgetting
from stream.kafka import acl_check, broker_metadata, clients, topics
from stream.kafka.in_flight import in_thread
from stream.kafka.log_starts import BROKERS_APART_MS, first_since
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import settled_bounds
from stream.kafka.reader import TopicReader
from stream.messages.decision import NamedDigests, decode_decisions
from stream.messages.journal import Genesis
from stream.messages.requests import ForgetRequest, decode_request
from stream.pages.times import to_the_second
from stream.roles.forgetter.compacted import RequestedPages, count_forgotten
from stream.settings import Settings
from stream.tables.store.failures import DAMAGED, OUTDATED

GENESIS_SECONDS: Final = 10.0


class Delay(msgspec.Struct, frozen=True):
    """Something that still has what was forgotten, or may have it."""

    what: str
    why: str
    until: str | None = None
    """When it ends by itself at the latest, as far as that is known."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of all requests."""

    requests: int
    decided: int
    unknown: int
    """Decided requests that named no page of the judge's state: nobody has such pages, or topics alone, as
    they were too short or rejected, or have expired."""
    pages: int
    """Pages that decided requests named."""
    forgotten: str | None
    """Since when no verdict names any page of decided requests; None if none was decided."""
    delays: list[Delay]
    notes: list[str]

    def lines(self) -> Iterator[str]:
        """Yield lines to read."""
        waiting = self.requests - self.decided
        yield (
            f"{self.requests:,} requests: {self.decided:,} decided, {waiting:,} waiting;"
            f" {self.pages:,} pages, {self.unknown:,} requests named no page of the judge's state"
        )
        if self.forgotten:
            yield f"no verdict names them since {self.forgotten}"
        for each in self.delays:
            until = f" (until {each.until} at the latest)" if each.until else ""
            yield f"delayed by {each.what}: {each.why}{until}"
        if not self.delays and self.forgotten:
            yield "holds everywhere that this command looks"
        for note in self.notes:
            yield f"note: {note}"


class _Decided(msgspec.Struct):
    """What decisions say of requests."""

    requests: int = 0
    pages: dict[int, int] = {}
    offset: int = -1
    """Of the last decision that forgot pages of states."""
    elected: int = -1
    """Of the last decision that electors attend to: with a lifetime, also one that forgot no page."""
    journal: int = 0
    """The journal offset before which the last decision stands. Topics have pages that states never had."""
    time: int = 0
    """When it was appended, in milliseconds since the epoch; 0 if there is none."""
    starts: list[tuple[int, int]] = []
    """(requests, journal) of each decision that the topic has."""
    known_from: int = 0
    """The first request of which it is known how many pages it named: decisions on those before are
    trimmed."""

    def add(self, noted: Forgetting) -> None:
        """Add what a state says, which may have applied decisions that are trimmed."""
        self.offset = max(self.offset, noted.decided - 1)
        self.elected = max(self.elected, self.offset)
        if noted.requests > self.requests:
            self.requests, self.journal, self.time = noted.requests, noted.journal, noted.appended

    def is_on_topic(self, request: int) -> bool:
        """Whether the topic has the decision on a request."""
        return bool(self.starts) and self.known_from <= request < self.starts[-1][0]

    def is_erased(self, name: CheckpointName) -> bool:
        """Whether nothing is left in a checkpoint of what was decided."""
        if is_dashboard(name.kind):
            return name.erased >= self.requests
        return name.erased > self.last(name.kind)

    def last(self, kind: str) -> int:
        """The offset of the last decision after which states of this kind have something to erase."""
        return self.offset if kind == JUDGE else self.elected


async def status(settings: Settings) -> Status:
    """Return what has become of all requests that the topic has. Raises AccessError, BrokerError and
    TopicError."""
    names = TopicNames(settings.namespace)
    await acl_check.check(settings, "forget")
    genesis = await topics.wait_for_genesis(settings, GENESIS_SECONDS)
    async with broker_metadata.connect(settings) as client:
        bounds = (await settled_bounds(client, [names.requests]))[TopicPartition(names.requests, 0)]
        since = await first_since(client, names.requests, 0)
        first = (
            await first_since(client, names.decisions, max(0, since.time - BROKERS_APART_MS))
            if since
            else None
        )
    appended, requests = dict[int, int](), list[tuple[int, ForgetRequest]]()
    async with TopicReader(settings, names.requests, bounds.start) as reader:
        while reader.position < bounds.end:
            for record in await reader.poll():
                appended[record.offset] = record.timestamp
                with suppress(RecordError):  # the judge reports it
                    requests.append((record.offset, decode_request(record.value, record.offset)))
    decided = _Decided(pages={}, known_from=sys.maxsize)
    if first is not None:
        decided = await _read_decisions(settings, genesis, first.offset)
    for each in await in_thread(_noted, settings, genesis):
        decided.add(each)
    done = [each for each in appended if each < decided.requests]
    delays, notes = list[Delay](), list[str]()
    if len(done) < len(appended):
        waiting = len(appended) - len(done)
        delays.append(
            Delay("the judge", f"{waiting:,} requests wait for a judge that leads, or are searched for")
        )
    if decided.time:
        delays += await _topics(settings, names, decided, notes)
        trimmed = {each: appended[each] for each in done if not decided.is_on_topic(each)}
        forgotten = RequestedPages(Wanted(requests, genesis), decided.starts, trimmed)
        delays += await _compacted(settings, names, forgotten, notes)
        delays += await in_thread(_directories, settings, genesis, decided)
        if settings.checkpoints:
            delays += await in_thread(_checkpoints, settings.checkpoints, genesis, decided)
        else:
            notes.append("checkpoints were not looked at: the setting checkpoints names no store")
        notes.append("state directories of other machines were not looked at")
        if trimmed:
            notes.append(
                f"{len(trimmed):,} requests were decided by records that are trimmed: how many pages they"
                " named is not known any more"
            )
    return Status(
        requests=len(appended),
        decided=len(done),
        unknown=sum(each >= decided.known_from and each not in decided.pages for each in done),
        pages=sum(decided.pages.values()),
        forgotten=to_the_second(decided.time / 1000) if decided.time else None,
        delays=delays,
        notes=notes,
    )


async def _read_decisions(settings: Settings, genesis: Genesis, start: int) -> _Decided:
    """Read what decisions from an offset on say of requests."""
    decided, topic = _Decided(pages={}), TopicNames(settings.namespace).decisions
    async with TopicReader(settings, topic, start) as reader:
        bounds = await reader.settled_bounds()
        reader.seek(max(bounds.start, start))
        is_trimmed = start <= bounds.start > 0
        while reader.position < bounds.end:
            for each in await reader.poll():
                record = decode_decisions(each.value, each.offset)
                if (forgotten := record.forgotten) is None:
                    continue
                if is_trimmed:
                    decided.known_from, is_trimmed = forgotten.requests, False
                decided.requests, decided.time = forgotten.requests, each.timestamp
                decided.journal = record.start
                decided.starts.append((forgotten.requests, record.start))
                decided.pages |= dict(forgotten.pages)
                if forgotten.urls:
                    decided.offset = decided.elected = each.offset
                elif genesis.options.lifetime is not None and forgotten.named != NamedDigests():
                    decided.elected = each.offset
        if is_trimmed:
            decided.known_from = sys.maxsize
    return decided


def _noted(settings: Settings, genesis: Genesis) -> list[Forgetting]:
    """How far requests have come in the judge's state of this machine, and in its newest checkpoint."""
    notes = list[Forgetting | None]()
    with suppress(StateError):
        own = summary_of(settings.state_dir / settings.namespace / JUDGE, JUDGE)
        notes += [own.forgetting] if own is not None and own.journal == genesis.journal else []
    if settings.checkpoints:
        catalogue = Catalogue(settings.checkpoints)
        for name in catalogue.kept(genesis.journal, JUDGE):
            with suppress(DamagedCheckpointError):
                notes.append(catalogue.read(name).forgetting)
                break
    return [each for each in notes if each is not None]


async def _topics(settings: Settings, names: TopicNames, decided: _Decided, notes: list[str]) -> list[Delay]:
    """What topics still have from before the last decision."""
    delays, kept = list[Delay](), [names.pages, names.verdicts, names.rejected]
    routed = [names.route_topic(verdict) for verdict in settings.routes]
    async with broker_metadata.connect(settings) as client:
        existing = list((await broker_metadata.metadata(client, kept)).topics)
        for topic in routed:
            try:
                existing += (await broker_metadata.metadata(client, [topic])).topics
            except TopicAuthorizationFailedError:
                notes.append(_not_described(topic))
        for topic in names.dashboard_changelogs:
            try:
                if (await broker_metadata.metadata(client, [topic])).topics:
                    delays.append(Delay(topic, "is of an earlier version, and not read any more: delete it"))
            except TopicAuthorizationFailedError:
                notes.append(_not_described(topic))
        configs = await broker_metadata.topic_configs(client, existing)
        before = await broker_metadata.log_bounds(client, existing)
        consumer = clients.reader(settings, auto_offset_reset="none")
        async with clients.open_client(settings, consumer):
            later = await consumer.offsets_for_times(dict.fromkeys(before, decided.time))
        # Records may be deleted meanwhile, so that there are none.
        after = await broker_metadata.log_bounds(client, [*existing, names.journal])
    for topic in existing:
        partitions = [each for each in before if each.topic == topic]
        if any(after[each].start < _first_later(later[each], before[each].end) for each in partitions):
            delays.append(_retention(topic, configs[topic], decided.time))
    if after[TopicPartition(names.journal, 0)].start < decided.journal:
        delays.append(
            Delay(
                names.journal,
                f"starts before offset {decided.journal}: `neardup trim` deletes what checkpoints replace"
                " that were made later",
            )
        )
    return delays


async def _compacted(
    settings: Settings, names: TopicNames, forgotten: RequestedPages, notes: list[str]
) -> list[Delay]:
    """What compacted topics still have of forgotten pages."""
    delays = list[Delay]()
    for topic in (names.clusters, names.best(settings.elector_name)):
        try:
            async with broker_metadata.connect(settings) as client:
                if not await broker_metadata.partition_counts(client, [topic]):
                    continue  # nobody elects
                config = (await broker_metadata.topic_configs(client, [topic]))[topic]
            count = await count_forgotten(settings, topic, forgotten)
        except TopicAuthorizationFailedError:
            notes.append(_not_described(topic))
            continue
        if count:
            lag, rolled = config.get("max.compaction.lag.ms"), config.get("segment.ms")
            delays.append(
                Delay(
                    topic,
                    f"{count:,} of its records name forgotten pages, and go once Kafka compacts it"
                    f" (max.compaction.lag.ms={lag}, segment.ms={rolled})",
                )
            )
    return delays


def _not_described(topic: str) -> str:
    return f"topic {topic} was not looked at: it is not described to this principal"


def _first_later(record: Any, end: int) -> int:
    return end if record is None else int(record.offset)


def _retention(topic: str, config: dict[str, str], time_: int) -> Delay:
    if "delete" not in config.get("cleanup.policy", "delete"):
        return Delay(topic, "is compacted: delete its records, or publish a later version of each page")
    kept, rolled = (int(config.get(name, "-1")) for name in ("retention.ms", "segment.ms"))
    if kept < 0:
        return Delay(topic, "has records from before, and retention.ms is -1: set it, or delete records")
    return Delay(
        topic,
        f"has records from before, for retention.ms={kept}",
        to_the_second((time_ + kept + rolled) / 1000),
    )


def _directories(settings: Settings, genesis: Genesis, decided: _Decided) -> list[Delay]:
    """What directories of this machine still have."""
    delays, home = list[Delay](), settings.state_dir / settings.namespace
    for path in figures.figures_below(home):
        if why := _left_of_figures(path, genesis, decided.requests):
            delays.append(Delay(str(path), why))
    if (earlier := home / "dashboard" / figures.EARLIER).exists():
        delays.append(Delay(str(earlier), "is of an earlier version, and not read any more: delete it"))
    for path in sorted(
        each
        for pattern in ("*", "dashboard*/*")
        for each in home.glob(pattern)
        if each.name != figures.FIGURES and each.is_dir()
    ):
        if f".{DAMAGED}-" in path.name or f".{OUTDATED}-" in path.name:
            delays.append(Delay(str(path), "was set aside: delete it"))
        elif (path / "CURRENT").exists() and (why := _left(path, decided)):
            delays.append(Delay(str(path), why))
    return delays


def _left_of_figures(path: Path, genesis: Genesis, requests: int) -> str | None:
    """Why a dashboard's figures may still have what was forgotten, or None."""
    try:
        meta = meta_of(path, path.parent.name)
    except StateError as error:
        return f"cannot be read: {error}"
    if meta is not None and meta.journal != genesis.journal:
        return f"is of another journal, {meta.journal}: delete it"
    if meta is None or meta.erased < requests:
        return "has not erased everything yet, as of its last flush"
    return None


def _left(path: Path, decided: _Decided) -> str | None:
    """Why a state directory may still have what was forgotten, or None."""
    kind = path.name if is_kind(path.name) else "judge"
    try:
        summary = summary_of(path, kind)
    except StateError as error:
        return f"cannot be read: {error}"
    last = decided.last(kind)
    if summary is None or summary.decided <= last:
        return "has not come so far, as of its last flush"
    if summary.erased <= last:
        return "has not erased everything yet, as of its last flush"
    return None


def _checkpoints(url: str, genesis: Genesis, decided: _Decided) -> list[Delay]:
    """What the store of checkpoints still has: all but files of checkpoints from which everything is
    erased."""
    catalogue = Catalogue(url)
    contents, sound = catalogue.contents(genesis.journal), dict[str, float]()
    """`sound`: since when at the latest a kind has checkpoints from which everything is erased."""
    delays, clean = list[Delay](), set[str]()
    if contents.earlier:
        names = ", ".join(sorted(contents.earlier))
        delays.append(
            Delay(url, f"has checkpoints of an earlier version, which nobody reads: delete {names}")
        )
    for name, since in (contents.pruned | contents.verified | contents.stored).items():
        if decided.is_erased(name):
            with suppress(DamagedCheckpointError):
                clean |= catalogue.read_once(name).digests
                sound[name.kind] = min(since, sound.get(name.kind, math.inf))
    if old := [name for name in contents.kept if not decided.is_erased(name)]:
        gone = max(sound.get(name.kind, math.inf) for name in old) + 2 * SPARED_SECONDS
        delays.append(
            Delay(
                url,
                f"{len(old)} checkpoints were made before all was erased; they go a day after a later one of"
                " their kind, and their files a day after that",
                to_the_second(gone) if gone < math.inf else None,
            )
        )
    # What was uploaded later is of directories from which everything was erased.
    elif any(
        digest not in clean and file.modified <= max(sound.values(), default=math.inf)
        for digest, file in contents.files.items()
    ):
        gone = max(contents.pruned.values(), default=0.0) + SPARED_SECONDS
        delays.append(
            Delay(
                url,
                "has files of checkpoints that were pruned, or of uploads that did not end; their role"
                " removes them",
                to_the_second(gone) if gone > time.time() else None,
            )
        )
    return delays
