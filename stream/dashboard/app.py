"""The Faust app: an agent that folds verdicts into tables, exactly once (docs/architecture.md, Dashboard).

Faust itself would read aborted verdicts, commit a verdict whose handler failed, lose some around a rebalance,
and count one twice after a crash. So here: the consumer reads committed records only, and tells of each which
one came before it, so that a hole ends the dashboard; a batch is acknowledged after its rows are in RocksDB
and in the changelogs; and every row knows the last offset folded into it, so what comes again counts once.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import faust
import msgspec
import structlog
import xxhash

from stream.dashboard.committed import CommittedTransport, hole
from stream.dashboard.credentials import credentials
from stream.dashboard.rows import (
    ClusterRow,
    Counts,
    Event,
    UrlRow,
    WindowRow,
    decode,
    fold_cluster,
    fold_url,
    fold_window,
)
from stream.dashboard.tables import RowTable, in_scope_of
from stream.dashboard.view import View, Window
from stream.dashboard.windows import DAY, HOSTS, TOTALS, Calendar
from stream.kafka.names import Names
from stream.kafka.verdict_values import VerdictReader
from stream.messages.verdict import VerdictRecord
from stream.settings import Settings

BATCH: Final = 1000
"""Verdicts folded at once: a row that many of them fall into is written once."""
BATCH_SECONDS: Final = 0.2
SWEEP_SECONDS: Final = 600.0

log = structlog.get_logger(__name__)


class Statistics:
    """Tables, the agent that fills them, and the view of their sums."""

    def __init__(self, settings: Settings, partitions: int, told: Callable[[list[Event]], None]) -> None:
        """`told` gets every batch of verdicts that were new to this dashboard."""
        names = Names(settings.namespace)
        self._settings, self._partitions, self._told = settings, partitions, told
        self._verdicts = names.verdicts
        self._reader = VerdictReader(settings)
        self.view = View(self.host_counts, self.cluster_rows)
        self.ready = asyncio.Event()
        """Set once the tables are recovered and the view is loaded."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.folded: dict[int, int] = {}
        """Partition -> the offset after the last verdict folded by this process."""
        self._given: dict[int, int] = {}
        """Partition -> the offset of the last verdict that Faust gave to the agent."""
        self.app = self._app(settings, names)
        self._totals = self._table("totals", calendar=Calendar(TOTALS))
        self._hosts = self._table("hosts", calendar=Calendar(HOSTS))
        self._clusters = self._table("clusters")
        self._urls = self._table("urls")
        self._topic = self.app.topic(names.verdicts, value_type=bytes, key_type=bytes, value_serializer="raw")
        self.app.agent(self._topic, name="fold")(self._fold_all)
        self._loaded: set[str] = set()
        for name, load in (
            ("totals", self._load_totals),
            ("hosts", self._load_hosts),
            ("clusters", self._load_clusters),
        ):
            self._tables[name].on_recover(self._loader(name, load))

    def _app(self, settings: Settings, names: Names) -> Any:
        directory = settings.state_dir / settings.namespace / "dashboard"
        directory.mkdir(parents=True, exist_ok=True)
        brokers = ";".join(f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(","))
        app = faust.App(
            names.dashboard,
            broker=brokers,
            broker_credentials=credentials(settings),
            store="rocksdb://?driver=rocksdict",
            datadir=str(directory),
            web_enabled=False,
            topic_disable_leader=True,
            topic_partitions=self._partitions,
            topic_replication_factor=1 if settings.dev else 3,
            reply_create_topic=False,
            # What is not folded at the end is not acknowledged: there is nothing to wait for.
            stream_wait_empty=False,
            # A static member: started again, also after a kill, it has its partitions at once.
            consumer_group_instance_id=_instance(directory),
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.session_seconds / 4,
            broker_commit_interval=1.0,
            consumer_auto_offset_reset="earliest",
            producer_linger=0.005,
            stream_buffer_maxsize=2 * BATCH,
            stream_recovery_delay=0.0,
            # Quiet hours are no error: without these, Faust reports agents that have nothing to do as stuck.
            stream_processing_timeout=float(DAY),
            worker_redirect_stdouts=False,
        )
        # A batch leaves as many changelog records at once; Faust's limit, 100, would stop the stream at each.
        app.producer.buffer.max_messages = 100 * BATCH
        app.transport = CommittedTransport(app.conf.broker_consumer, app)
        self._tables: dict[str, RowTable] = {}
        return app

    def _table(self, name: str, calendar: Calendar | None = None) -> Any:
        table = RowTable(self.app, name=name, partitions=self._partitions)
        made = table if calendar is None else table.using_window(calendar)
        if calendar is not None:
            # Old windows leave the changelog in whole segments.
            table.extra_topic_configs = {"segment.ms": str(DAY * 1000)}
        self.app.tables.add(table)
        self._tables[name] = table
        return made

    # Reading the verdicts.

    async def _fold_all(self, stream: Any) -> None:
        """The loop: take a batch, fold it, wait for the changelogs, acknowledge.

        An error must not acknowledge anything, nor start the agent anew: it ends the dashboard.
        """
        try:
            async for batch in stream.noack_take(BATCH, within=BATCH_SECONDS):
                self._fold(batch)
                await asyncio.gather(*(table.durable() for table in self._tables.values()))
                for each in batch:
                    await stream.ack(each)
                    self.folded[each.message.partition] = each.message.offset + 1
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            await asyncio.Event().wait()

    def _fold(self, batch: list[Any]) -> None:
        if not self.ready.is_set():
            raise RuntimeError("verdicts came before the tables were recovered")
        by_partition: defaultdict[int, list[Any]] = defaultdict(list)
        for each in batch:
            by_partition[each.message.partition].append(each)
        for partition, messages in by_partition.items():
            for each in messages:
                if hole(each.message, self._given.get(partition)):
                    raise RuntimeError(
                        f"{self._verdicts}[{partition}]: Faust left out verdicts before {each.message.offset}"
                    )
                self._given[partition] = each.message.offset
            events = [
                decode(partition, each.message.offset, self._reader.json(each.message)) for each in messages
            ]
            with in_scope_of(messages[-1]):
                new = self._fold_partition(partition, events)
            self._told(new)
        self.view.revision += 1

    def _fold_partition(self, partition: int, events: list[Event]) -> list[Event]:
        """Into all tables; the events that were new. Log time never falls within a partition."""
        now = time.time()
        new = self._fold_urls(partition, events)
        for moment, group in groupby(events, key=lambda each: each.seconds // min(TOTALS)):
            together = list(group)
            seconds = moment * min(TOTALS)
            for window, news in _fold_windows(self._totals, f"{partition}/", seconds, together, now):
                self.view.count_total(window, news)
            for host, its in _grouped(together, lambda each: each.host):
                for window, news in _fold_windows(self._hosts, f"{partition}/{host}", seconds, its, now):
                    self.view.count_host(window, host, news)
        duplicates = [each for each in events if each.verdict.verdict == "duplicate" and each.verdict.cluster]
        for cluster, its in _grouped(duplicates, lambda each: each.verdict.cluster or ""):
            key = f"{partition}/{cluster}"
            row = _cluster_row(self._clusters[key])
            count = fold_cluster(row, its)
            self._clusters[key] = msgspec.msgpack.encode(row)
            if count:
                self.view.count_cluster(cluster, count, row.anchor)
        return new

    def _fold_urls(self, partition: int, events: list[Event]) -> list[Event]:
        new: list[Event] = []
        for key, its in _grouped(events, lambda each: each.key):
            place = _url_place(partition, key)
            row = _url_row(self._urls[place])
            new += [each for each in its if each.offset > row.offset]
            fold_url(row, its)
            self._urls[place] = msgspec.msgpack.encode(row)
        return sorted(new, key=lambda each: each.offset)

    # Reading the tables, outside of the agent.

    def host_counts(self, window: Window, host: str) -> Counts:
        """A host's counts of a window, from the tables: the sum over partitions."""
        start, size = window
        counts, table = Counts(), self._tables["hosts"]
        for partition in range(self._partitions):
            value = table.get((f"{partition}/{host}", (float(start), float(start + size))), b"")
            counts.add(_window_row(value).counts)
        return counts

    def cluster_rows(self, cluster: str) -> list[ClusterRow]:
        """What each partition knows of a cluster."""
        table = self._tables["clusters"]
        values = (table.get(f"{partition}/{cluster}", b"") for partition in range(self._partitions))
        return [_cluster_row(value) for value in values if value]

    def history(self, url_key: str) -> list[VerdictRecord]:
        """The last verdicts of a URL, newest first."""
        table, found = self._tables["urls"], []
        for partition in range(self._partitions):
            found += _url_row(table.get(_url_place(partition, url_key), b"")).verdicts
        return sorted(found, key=lambda verdict: verdict.decided_at, reverse=True)

    @property
    def read(self) -> int:
        """How many partitions of the verdicts this dashboard has; not all when there is another one."""
        return (
            sum(tp.topic == self._verdicts for tp in self.app.consumer.assignment())
            if self.ready.is_set()
            else 0
        )

    # Loading and sweeping.

    def _loader(self, name: str, load: Callable[[], None]) -> Callable[[], Any]:
        async def loader() -> None:
            # Faust swallows the errors of these callbacks.
            try:
                if name in self._loaded:  # partitions came or went
                    self._loaded.clear()
                    self.view.clear()
                    self.ready.clear()
                load()
                self._loaded.add(name)
                if len(self._loaded) == 3:
                    self.view.revision += 1
                    self.ready.set()
                    log.info("ready", windows=len(self.view.totals), clusters=len(self.view.clusters))
            except Exception as error:
                if not self.failed.done():
                    self.failed.set_exception(error)

        return loader

    def _load_totals(self) -> None:
        for _, window, counts in _stored(self._tables["totals"]):
            self.view.count_total(window, counts)

    def _load_hosts(self) -> None:
        for key, window, counts in _stored(self._tables["hosts"]):
            self.view.count_host(window, key.partition("/")[2], counts, loading=True)

    def _load_clusters(self) -> None:
        for key, value in self._tables["clusters"].items():
            row = _cluster_row(value)
            self.view.count_cluster(key.partition("/")[2], row.duplicates, row.anchor, loading=True)

    async def sweep(self) -> None:
        """Again and again, forget windows whose time is over."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.time()
            self.view.sweep(now)
            for name, calendar in (
                ("totals", self._totals.table.window),
                ("hosts", self._hosts.table.window),
            ):
                table, gone = self._tables[name], []
                for place, (key, _) in enumerate(table.items()):
                    if calendar.expired(key[1], now):
                        gone.append(key)
                    if place % 500 == 0:
                        await asyncio.sleep(0)
                table.drop(gone)


def _instance(directory: Path) -> str:
    """The member id of the dashboard of a state directory; made once, kept in it."""
    path = directory / "instance"
    if not path.exists():
        path.write_text(uuid.uuid4().hex, encoding="ascii")
    return path.read_text(encoding="ascii")


def _fold_windows(
    table: Any, key: str, seconds: float, events: list[Event], now: float
) -> Iterable[tuple[Window, Counts]]:
    """Fold events of one moment into each window that is still kept; what was new to it."""
    calendar = table.table.window
    rows = table[key]
    for window in calendar.ranges(seconds):
        if calendar.expired(window, now):
            continue
        row = _window_row(rows[window])
        news = fold_window(row, events)
        # Written also when nothing was new: the changelog may have lost the row in a crash.
        rows[window] = msgspec.msgpack.encode(row)
        if news.verdicts:
            yield (int(window[0]), round(window[1] - window[0])), news


def _stored(table: RowTable) -> Iterable[tuple[str, Window, Counts]]:
    for (key, (start, end)), value in table.items():
        yield key, (int(start), round(end - start)), _window_row(value).counts


def _grouped(events: list[Event], key: Callable[[Event], str]) -> Iterable[tuple[str, list[Event]]]:
    groups: dict[str, list[Event]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return groups.items()


def _url_place(partition: int, key: str) -> str:
    return f"{partition}/{xxhash.xxh3_128_hexdigest(key.encode(errors='replace'))}"


def _window_row(value: bytes) -> WindowRow:
    return _WINDOW.decode(value) if value else WindowRow()


def _cluster_row(value: bytes) -> ClusterRow:
    return _CLUSTER.decode(value) if value else ClusterRow()


def _url_row(value: bytes) -> UrlRow:
    return _URL.decode(value) if value else UrlRow()


_WINDOW = msgspec.msgpack.Decoder(WindowRow)
_CLUSTER = msgspec.msgpack.Decoder(ClusterRow)
_URL = msgspec.msgpack.Decoder(UrlRow)
