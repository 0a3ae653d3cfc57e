"""The Faust app: an agent that folds verdicts into tables, exactly once (docs/architecture/dashboard.md).

Plain Faust would read aborted verdicts, commit verdicts whose handler failed, lose some around a rebalance,
and count some twice after a crash. Here, the consumer reads committed records only. Each batch names its
predecessor, so that a skipped batch ends the dashboard. Batches are acknowledged after their rows are in
RocksDB and in the changelogs. Each row stores the last offset folded into it, so redelivered verdicts count
once.

A message is a whole batch of records, and many batches are folded together, so that a row is written once for
thousands of verdicts.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import faust
import structlog
from faust.types import TP

from stream.dashboard.counting.committed import BatchRecords, CommittedTransport, records_skipped
from stream.dashboard.counting.credentials import credentials
from stream.dashboard.counting.ends import FoldedOffsets
from stream.dashboard.counting.faust_internals import (
    changelog_config,
    database_path,
    in_scope_of,
    items,
    write_standbys,
)
from stream.dashboard.counting.fold import (
    ClusterTable,
    Folder,
    cluster_key,
    cluster_of,
    cluster_row,
    window_key,
    window_row,
)
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.history import History
from stream.dashboard.counting.loading import ViewLoading
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.row_tables import BEHIND_KEYS, FIRST_KEY, RowTable
from stream.dashboard.counting.rows import ClusterRow, Counts
from stream.dashboard.counting.verdict_columns import Sum, VerdictColumns, batch_of
from stream.dashboard.counting.view import View, Window
from stream.dashboard.counting.windows import DAY, HOSTS, TOTALS, Calendar
from stream.errors import StaleError
from stream.futures import retrieved
from stream.kafka.member import member_id
from stream.kafka.names import TopicNames
from stream.kafka.verdict_values import MAGIC, PlacedValue, VerdictReader
from stream.messages.verdict import VerdictRecord
from stream.private import private_directory
from stream.settings import Settings

TURN: Final = 16
"""Maximum number of batches of records taken at once, of at most a megabyte each."""
TURN_SECONDS: Final = 0.2
FETCH_BYTES: Final = 256 << 10
"""Maximum fetch size per partition, compressed. Several copies are in memory during a fold."""
SWEEP_SECONDS: Final = 600.0

log = structlog.get_logger(__name__)


def directory_of(settings: Settings) -> Path:
    """Return the directory of a dashboard."""
    return settings.state_dir / settings.namespace / "dashboard"


def tables_directory(settings: Settings) -> Path:
    """Return the directory of the tables' RocksDB databases, which can be rebuilt from the changelogs."""
    return (directory_of(settings) / "v1" / "tables").absolute()


def check_partitions(topic: str, now: int, partitions: int) -> None:
    """Raise StaleError if the topic has more partitions `now` than at the start."""
    if now > partitions:
        raise StaleError(
            f"topic {topic}: partitions were added, it had {partitions}; this dashboard ends, and reads the"
            " new ones when restarted"
        )


class Statistics:
    """The tables, the agent that fills them, and the view of their sums."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        report: Callable[[VerdictColumns], None],
        forgotten: ForgottenPages,
    ) -> None:
        """`report` is called with every batch of verdicts that is new to this dashboard."""
        names = TopicNames(settings.namespace)
        self._settings, self._partitions, self._report = settings, partitions, report
        self._forgotten = forgotten
        self._folding = asyncio.Lock()
        """Held while rows are written and sent, so that they come to the changelog in one order."""
        self._verdicts = names.verdicts
        self._reader = VerdictReader(settings)
        self.view = View(self.host_counts, self.cluster_rows)
        self.ready = asyncio.Event()
        """Set once the tables are recovered and the view is loaded."""
        self.failed: asyncio.Future[None] = retrieved(asyncio.get_running_loop().create_future())
        self.folded: dict[int, int] = {}
        """Partition -> the offset after the last verdict folded by this process."""
        self._last_given: dict[int, int] = {}
        """Partition -> the offset of the last verdict delivered to the agent."""
        self._reported_to: dict[int, int] = {}
        """Partition -> the offset of the last verdict passed to `report`."""
        self._ends: defaultdict[int, FoldedOffsets] = defaultdict(FoldedOffsets)
        self._pending = Pending(-1)
        self._interrupted_generation: int | None = None
        self.app = self._app(settings, names)
        self._calendars = {"totals": Calendar(TOTALS), "hosts": Calendar(HOSTS)}
        for name in ("totals", "hosts", "clusters"):
            self._table(name, self._calendars.get(name))
        self._urls = History(self.app, name="urls", partitions=self._partitions)
        self.app.tables.add(self._urls)
        self._tables["urls"] = self._urls
        tables = self._tables
        self._folder = Folder(tables["totals"], tables["hosts"], tables["clusters"], self.view)
        self._topic = self.app.topic(names.verdicts, value_type=bytes, key_type=bytes, value_serializer="raw")
        self.app.agent(self._topic, name="fold")(self._fold_all)
        loads = {"totals": self._load_totals, "hosts": self._load_hosts, "clusters": self._load_clusters}
        self._loading = ViewLoading(set(loads), self._forget, lambda: self.app.consumer_generation_id)
        for name, load in loads.items():
            self._tables[name].on_recover(self._loader(name, load))

    def _app(self, settings: Settings, names: TopicNames) -> Any:
        directory = directory_of(settings)
        private_directory(directory)
        self._instance = directory / "instance"
        brokers = ";".join(f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(","))
        app = faust.App(
            names.dashboard,
            broker=brokers,
            broker_credentials=credentials(settings),
            store="rocksdb://?driver=rocksdict",
            datadir=str(directory),
            tabledir=str(tables_directory(settings)),
            web_enabled=False,
            topic_disable_leader=True,
            topic_partitions=self._partitions,
            topic_replication_factor=1 if settings.dev else 3,
            reply_create_topic=False,
            # At shutdown, unfolded verdicts stay unacknowledged, so there is nothing to wait for.
            stream_wait_empty=False,
            # A static member gets its partitions back at once after a restart, even after a kill. With
            # another number of partitions, it must be another member to get the new ones.
            consumer_group_instance_id=f"{member_id(self._instance)}-{self._partitions}",
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.session_seconds / 4,
            broker_commit_interval=1.0,
            consumer_auto_offset_reset="earliest",
            producer_linger=0.005,
            consumer_max_fetch_size=FETCH_BYTES,
            stream_buffer_maxsize=TURN // 2,
            stream_recovery_delay=0.0,
            # By default, Faust reports idle agents as stuck.
            stream_processing_timeout=float(DAY),
            worker_redirect_stdouts=False,
        )
        app.transport = CommittedTransport(app.conf.broker_consumer, app)
        self._tables: dict[str, RowTable] = {}
        return app

    def _table(self, name: str, calendar: Calendar | None) -> None:
        kind = ClusterTable if name == "clusters" else RowTable
        table = kind(self.app, name=name, partitions=self._partitions)
        if calendar is not None:
            table.using_window(calendar)
            # Retention deletes old windows from the changelog by whole segments.
            table.extra_topic_configs = {"segment.ms": str(DAY * 1000)}
        self.app.tables.add(table)
        self._tables[name] = table

    @property
    def changelogs(self) -> dict[str, dict[str, str]]:
        """The changelog topics with their configurations. They have to exist before the app starts: Faust
        creates them too, but may join its group before the brokers have published them."""
        return {
            table.changelog_topic_name: changelog_config(self.app, table) for table in self._tables.values()
        }

    # Reading the verdicts.

    async def _fold_all(self, stream: Any) -> None:
        """Accumulate batches, and fold the sums concurrently."""
        folding = asyncio.create_task(self._or_fail(self._fold_pending(stream)))
        try:
            await self._or_fail(self._take_all(stream))
        finally:
            folding.cancel()

    async def _or_fail(self, work: Awaitable[None]) -> None:
        """On an error, end the dashboard without acknowledging events or restarting the agent."""
        try:
            await work
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            await asyncio.Event().wait()

    async def _take_all(self, stream: Any) -> None:
        async for events in stream.noack_take(TURN, within=TURN_SECONDS):
            for event in events:
                await self._take(event)
                await asyncio.sleep(0)
            await self._pending.wait_for_room(idle=len(events) < TURN)

    async def _fold_pending(self, stream: Any) -> None:
        while True:
            pending = self._pending
            await pending.wait_until_due()
            if pending is not self._pending:  # dropped
                continue
            async with self._folding:
                self._pending = Pending(pending.generation)
                is_folded = await self._fold(pending)
            pending.done.set()
            if is_folded:
                for event in pending.events:
                    event.message.value.folded = True
                    await stream.ack(event)
                    self.folded[event.message.partition] = event.message.offset + 1

    async def _take(self, event: Any) -> None:
        """Store a batch of verdicts in the history, and add it to the pending sums."""
        if not self.ready.is_set():
            raise RuntimeError("verdicts arrived before the tables were recovered")
        self._drop_after_rebalance()
        pending, message = self._pending, event.message
        if message.generation_id != pending.generation:
            return  # will be redelivered
        partition, records = message.partition, message.value
        check_partitions(self._verdicts, partition + 1, self._partitions)
        with in_scope_of(event):
            for table in self._tables.values():
                table.partition_for_key(b"")  # raises if the changelog has another number of partitions
        if records_skipped(message, self._last_given.get(partition)):
            raise RuntimeError(
                f"{self._verdicts}[{partition}]: Faust skipped verdicts before offset {message.offset}"
            )
        offsets, values = records.offsets, records.values
        if any(map(bytes.startswith, values, repeat(MAGIC))):
            values = await asyncio.to_thread(self._json, partition, records)
            self._drop_after_rebalance()
            if pending is not self._pending:
                return
        batch = batch_of(partition, offsets, list(self._forgotten.forget_all(values)))
        self._last_given[partition] = message.offset
        records.clear()  # the event is kept until it is acknowledged
        # The history first, so that all counted verdicts can be looked up.
        pending.send(self._urls.send(partition, self._urls.keep([batch])))
        pending.add(event, batch, self._ends[partition])
        reported = max(self._reported_to.get(partition, -1), self._ends[partition].last)
        if batch.last > reported:
            self._reported_to[partition] = batch.last
            self._report(batch.between(reported + 1, batch.last))

    def _drop_after_rebalance(self) -> None:
        """After a rebalance, drop pending verdicts. They are redelivered, here or to another dashboard."""
        generation = self.app.consumer_generation_id
        if generation != self._pending.generation:
            self._pending.drop()
            self._pending = Pending(generation)
            self._last_given = {partition: end - 1 for partition, end in self.folded.items()}

    def _json(self, partition: int, records: BatchRecords) -> list[bytes]:
        placed = zip(records.offsets, records.values, strict=True)
        return [self._reader.json(PlacedValue(self._verdicts, partition, *each)) for each in placed]

    async def _fold(self, pending: Pending) -> bool:
        """Fold pending sums into tables, changelogs and view. Returns False if a rebalance interrupted it."""
        for partition, sums in pending.sums.items():
            for each in sums:
                rows = await self._write(partition, each, pending.generation)
                if rows is None:
                    pending.drop()
                    return False
                if each is not sums[0]:
                    await pending.finish_sends()  # keep the order of rows in the changelog
                for table, its in rows.items():
                    pending.send(table.send(partition, its))
        await pending.finish_sends()
        self.view.revision += 1
        return bool(pending.generation == self.app.consumer_generation_id)

    async def _write(
        self, partition: int, increment: Sum, generation: int
    ) -> dict[RowTable, dict[bytes, bytes]] | None:
        """Write a sum, and return the rows for the changelogs, or None if it was interrupted.

        Other tasks run after each slice of rows.
        """
        if self._note_interruption(partition, generation):
            return None
        self._ends[partition].add(increment.last)
        rows: defaultdict[RowTable, dict[bytes, bytes]] = defaultdict(dict)
        for table, written in self._folder.fold(partition, increment):
            rows[table].update(written)
            await asyncio.sleep(0)
            if self._note_interruption(partition, generation):
                return None
        return rows

    def _note_interruption(self, partition: int, generation: int) -> bool:
        """Note whether a rebalance or the end of the app interrupted a generation, which is then not folded
        any further, and return it.

        When Faust stops, it closes the databases while agents still run. Then no row can be read: sums would
        replace the rows.
        """
        tables = self._tables.values()
        if generation != self.app.consumer_generation_id or any(
            table.assigned_database(partition) is None for table in tables
        ):
            self._interrupted_generation = generation
        return self._interrupted_generation == generation

    # Forgetting.

    @property
    def stored_partitions(self) -> set[int]:
        """Partitions whose rows are on the disk, or were and are being recovered."""
        return {each for each in range(self._partitions) if database_path(self._urls, each).exists()}

    @property
    def open_partitions(self) -> set[int]:
        """Partitions whose rows are recovered and can be read here now: those that are assigned to this
        dashboard, and perhaps some of which another one is in charge."""
        if not self.ready.is_set():
            return set()
        tables = self._tables.values()
        return {
            each
            for each in range(self._partitions)
            if all(table.assigned_database(each) is not None for table in tables)
        }

    async def rewrite(self, partition: int, *, whole: bool) -> int | None:
        """Remove what the rows of a partition say of pages that are forgotten, in RocksDB and changelogs, and
        return how many rows it were. If `whole`, files are rewritten though no row names any of these pages:
        an earlier version of one may have.

        None if a rebalance interrupted it, or another dashboard is in charge of the partition, and has not
        rewritten it.
        """
        generation, rewritten = self.app.consumer_generation_id, 0
        is_ours = TP(self._verdicts, partition) in self.app.consumer.assignment()
        if (pending := self._pending).events:  # which were read when less was forgotten
            await pending.done.wait()
        try:
            if not is_ours:
                write_standbys(self.app)
            for name in ("urls", "clusters"):
                slices = await self._rewrite_rows(self._tables[name], partition, is_ours=is_ours)
                if slices is None:
                    return None
                rewritten += sum(slices.values())
                await self._compact(
                    self._tables[name], partition, [each for each, rows in slices.items() if rows or whole]
                )
        except Exception:
            if generation == self.app.consumer_generation_id and partition in self.open_partitions:
                raise
            return None
        return rewritten if generation == self.app.consumer_generation_id else None

    async def _rewrite_rows(
        self, table: RowTable, partition: int, *, is_ours: bool
    ) -> dict[tuple[bytes, bytes], int] | None:
        """Rewrite a few rows at a time. Returns how many rows it were of which ranges of keys, of all. None
        if there are any and they are not ours."""
        start, count = FIRST_KEY, dict[tuple[bytes, bytes], int]()
        while start < BEHIND_KEYS:
            began, first, keys = time.monotonic(), start, list[bytes]()
            start = BEHIND_KEYS
            for key, row in table.next_rows(partition, first):
                if time.monotonic() > began + TURN_SECONDS / 20:
                    start = key
                    break
                if table.without(key, row, self._forgotten) is not None:
                    keys.append(key)
            if keys and not is_ours:
                return None
            if keys:
                await self._replace(table, partition, keys)
            count[first, start] = len(keys)
            await asyncio.sleep(time.monotonic() - began)
        return count

    async def _compact(self, table: RowTable, partition: int, slices: list[tuple[bytes, bytes]]) -> None:
        """Rewrite the files with rows in ranges of keys, and the index of the table."""
        if not slices:
            return
        table.flush(partition)
        for each in (*slices, *table.index_slices(partition)):
            began = time.monotonic()
            table.compact(partition, *each)
            await asyncio.sleep(time.monotonic() - began)

    async def _replace(self, table: RowTable, partition: int, keys: list[bytes]) -> None:
        async with self._folding:
            rows = table.rewritten(partition, keys, self._forgotten)
            await table.replace(partition, rows)
        if table is self._tables["clusters"]:
            for key, each in rows.items():
                if not cluster_row(each.row).anchor:
                    self.view.forget_anchor(cluster_of(key))
            self.view.revision += 1

    # Reading the tables, outside of the agent.

    def host_counts(self, window: Window, host: str) -> Counts:
        """Return the counts of a host and window from the tables, summed over partitions."""
        counts = Counts()
        for partition in range(self._partitions):
            (row,) = self._tables["hosts"].rows(partition, [window_key(partition, window, host)])
            counts.add(window_row(row).counts)
        return counts

    def cluster_rows(self, cluster: str) -> list[ClusterRow]:
        """Return the rows of a cluster, one per partition."""
        table, values = self._tables["clusters"], []
        for partition in range(self._partitions):
            values += table.rows(partition, [cluster_key(partition, cluster)])
        return [cluster_row(row) for row in values if row]

    def history(self, url_key: str) -> list[VerdictRecord]:
        """Return the last verdicts of a URL, newest first."""
        verdicts: list[VerdictRecord] = []
        for partition in range(self._partitions):
            verdicts += self._urls.of(partition, url_key)
        return sorted(verdicts, key=lambda verdict: verdict.decided_at, reverse=True)

    @property
    def read(self) -> int:
        """Number of partitions of the verdicts topic assigned here. Another dashboard may have some."""
        return (
            sum(tp.topic == self._verdicts for tp in self.app.consumer.assignment())
            if self.ready.is_set()
            else 0
        )

    # Loading and sweeping.

    def _loader(self, name: str, load: Callable[[], Iterator[None]]) -> Callable[[], Any]:
        async def loader() -> None:
            # Faust swallows the errors of these callbacks.
            try:
                if await self._loading.load(name, load):
                    self._refuse_partial_assignment()
                    self.view.revision += 1
                    self.ready.set()
                    log.info("ready", windows=len(self.view.totals), clusters=len(self.view.clusters))
            except Exception as error:
                if not self.failed.done():
                    self.failed.set_exception(error)

        return loader

    def _refuse_partial_assignment(self) -> None:
        """Raise StaleError if this dashboard has partitions of the verdicts without those of a changelog:
        what it reads could not be counted."""
        assigned = self.app.consumer.assignment()
        for tp in sorted(assigned):
            for table in self._tables.values():
                changelog = table.changelog_topic_name
                if tp.topic == self._verdicts and TP(changelog, tp.partition) not in assigned:
                    # A static member that comes back gets this assignment again: be another one then.
                    self._instance.unlink(missing_ok=True)
                    raise StaleError(
                        f"topic {changelog}: partition {tp.partition} was not assigned with that of"
                        f" {self._verdicts}; this dashboard ends, and gets it when restarted"
                    )

    def _forget(self) -> None:
        self._ends.clear()
        self.view.clear()
        self.ready.clear()

    def _load_totals(self) -> Iterator[None]:
        for _, window, counts in self._stored_counts("totals"):
            self.view.count_total(window, counts)
            yield

    def _load_hosts(self) -> Iterator[None]:
        for key, window, counts in self._stored_counts("hosts"):
            self.view.count_host(window, key.partition("/")[2], counts, loading=True)
            yield

    def _stored_counts(self, name: str) -> Iterable[tuple[str, Window, Counts]]:
        for (key, (start, end)), value in items(self._tables[name]):
            row = window_row(value)
            self._ends[int(key.partition("/")[0])].add(row.offset)
            yield key, (int(start), round(end - start)), row.counts

    def _load_clusters(self) -> Iterator[None]:
        for key, value in items(self._tables["clusters"]):
            partition, _, cluster = key.partition("/")
            row = cluster_row(value)
            self._ends[int(partition)].add(row.offset)
            self.view.count_cluster(cluster, row.members, row.anchor, loading=True)
            yield

    async def sweep(self) -> None:
        """Delete expired windows periodically."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.time()
            self.view.sweep(now)
            for name, calendar in self._calendars.items():
                table, gone = self._tables[name], []
                for place, (key, _) in enumerate(items(table)):
                    if calendar.expired(key[1], now):
                        gone.append(key)
                    if place % 500 == 0:
                        await asyncio.sleep(0)
                table.drop(gone)
