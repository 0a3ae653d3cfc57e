"""The Faust app: an agent that counts verdicts, exactly once (docs/architecture/dashboard.md).

Whenever partitions are assigned, reading goes on at the position of the state, which is written with what
was counted. The group's commit is there to measure lag. A message is a whole batch of records, which says
where the one before it ended: a batch that does not go on where the last one ended ends the dashboard. Many
batches are folded together, so that a row is written once for thousands of verdicts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import faust
import structlog

from stream.dashboard.counting.committed import BatchRecords, CommittedTransport
from stream.dashboard.counting.credentials import credentials
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.counting.state import BLOCKS, State
from stream.dashboard.counting.verdict_columns import VerdictColumns, batch_of
from stream.dashboard.counting.view import View
from stream.dashboard.counting.windows import DAY
from stream.errors import StaleError, StateError
from stream.figures import kind_of_dashboard
from stream.futures import retrieved
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.in_flight import in_stoppable_thread, in_thread
from stream.kafka.member import member_id
from stream.kafka.names import TopicNames
from stream.kafka.verdict_values import MAGIC, VerdictReader
from stream.settings import Settings
from stream.tables.store.rocks import CLUSTERS

TURN: Final = 16
"""Maximum number of batches of records taken at once, of at most a megabyte each."""
TURN_SECONDS: Final = 0.2
FETCH_BYTES: Final = 256 << 10
"""Maximum fetch size per partition, compressed. Several copies are in memory during a fold."""
SWEEP_SECONDS: Final = 600.0
SLICE: Final = 500
"""Rows shown before other tasks run."""

log = structlog.get_logger(__name__)


def directory_of(settings: Settings) -> Path:
    """Return the directory of a dashboard."""
    return settings.state_dir / settings.namespace / kind_of_dashboard(settings.dashboard_name)


def check_partitions(topic: str, now: int, partitions: int) -> None:
    """Raise StaleError if the topic has more partitions `now` than at the start."""
    if now > partitions:
        raise StaleError(
            f"topic {topic}: partitions were added, it had {partitions}; this dashboard ends, and reads the"
            " new ones when restarted"
        )


class Statistics:
    """The state, the agent that counts in it, and the view of it."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        bounds: Mapping[int, LogBounds],
        report: Callable[[VerdictColumns], None],
        forgotten: ForgottenPages,
    ) -> None:
        """`bounds` are those of the verdicts, by partition; `report` is called with every batch of verdicts
        that is new to this process. Raises StateError if the topic ends before what is counted."""
        names = TopicNames(settings.namespace)
        self._settings, self._partitions, self._report = settings, len(bounds), report
        self.state: Final = state
        self._forgotten = forgotten
        self._verdicts, self._group = names.verdicts, names.dashboard(settings.dashboard_name)
        self._reader = VerdictReader(settings)
        self.view = View(state.host_counts)
        self.ready = asyncio.Event()
        """Set while the view is loaded, and all partitions are assigned."""
        self._had_all = False
        """Whether all were assigned before."""
        self.failed: asyncio.Future[None] = retrieved(asyncio.get_running_loop().create_future())
        self._gaps = set[int]()
        """Partitions that begin after verdicts that were not counted, and are gone."""
        self._next = {partition: self._first(partition, each) for partition, each in bounds.items()}
        """Partition -> the offset after the last verdict that is counted or pending."""
        self._pending = Pending()
        self._newest = 0.0
        """When the newest verdict was decided, in seconds since the epoch."""
        self._writing = asyncio.Lock()
        """Held while rows are read and replaced."""
        self.app = self._app()
        topic = self.app.topic(names.verdicts, value_type=bytes, key_type=bytes, value_serializer="raw")
        self.app.agent(topic, name="fold")(self._take_all)
        self.app.on_partitions_assigned.connect(self._note_assignment)

    def _first(self, partition: int, log_of_verdicts: LogBounds) -> int:
        """The offset at which to go on."""
        counted, start = self.counted.get(partition, 0), log_of_verdicts.start
        if counted > log_of_verdicts.end:
            raise StateError(
                f"state directory {self.state.store.path}: has counted topic {self._verdicts} partition"
                f" {partition} up to {counted}, but it ends at {log_of_verdicts.end}; delete the directory,"
                " and what the topic has is counted again"
            )
        if start > counted + (counted > 0):  # behind the last verdict is the marker of its transaction
            log.warning("verdicts_gone", partition=partition, counted=counted, log_start=start)
            self._gaps.add(partition)
        return max(counted, start)

    def _app(self) -> Any:
        settings, directory = self._settings, directory_of(self._settings)
        brokers = ";".join(f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(","))
        app = faust.App(
            self._group,
            broker=brokers,
            broker_credentials=credentials(settings),
            datadir=str(directory / "faust"),  # which it makes, and where it puts nothing
            web_enabled=False,
            topic_disable_leader=True,
            topic_partitions=self._partitions,
            table_standby_replicas=0,
            reply_create_topic=False,
            # At shutdown, unfolded verdicts are read again, so there is nothing to wait for.
            stream_wait_empty=False,
            # A static member gets its partitions back at once after a restart, even after a kill. With
            # another number of partitions, it must be another member to get the new ones.
            consumer_group_instance_id=f"{member_id(directory / 'instance')}-{self._partitions}",
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.session_seconds / 4,
            broker_commit_interval=1.0,
            # Verdicts that are deleted before they are read end the dashboard; the next one notes the gap.
            consumer_auto_offset_reset="none",
            consumer_max_fetch_size=FETCH_BYTES,
            stream_buffer_maxsize=TURN // 2,
            stream_recovery_delay=0.0,
            # By default, Faust reports idle agents as stuck.
            stream_processing_timeout=float(DAY),
            worker_redirect_stdouts=False,
        )
        app.transport = CommittedTransport(app, self._next_offset, lambda: self.counted)
        return app

    @property
    def counted(self) -> dict[int, int]:
        """Partition -> the offset before which its verdicts are counted."""
        return self.state.meta.positions

    @property
    def read(self) -> int:
        """Number of partitions of the verdicts topic assigned here."""
        return len(self.app.consumer.assignment()) if self.ready.is_set() else 0

    # Reading the verdicts.

    def _next_offset(self, partition: int) -> int:
        return self._next.get(partition, 0)

    async def _note_assignment(self, _app: Any, assigned: Collection[Any], **_: Any) -> None:
        if len(assigned) >= self._partitions:
            self._had_all = True
            self.ready.set()
            log.info("ready", windows=len(self.view.totals), clusters=len(self.view.clusters))
        elif self._had_all:
            self.ready.clear()
            log.warning("partitions_missing", assigned=len(assigned), partitions=self._partitions)
        elif assigned:
            self.fail(
                StaleError(
                    f"group {self._group}: another dashboard of this name reads {self._verdicts}; this one"
                    " ends: run one dashboard of a name, or give each a dashboard_name"
                )
            )

    def fail(self, error: Exception) -> None:
        """End the dashboard with an error."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def _take_all(self, stream: Any) -> None:
        """Accumulate batches. An error ends the dashboard; Faust does not restart the agent."""
        try:
            async for events in stream.noack_take(TURN, within=TURN_SECONDS):
                for event in events:
                    await self._take(event.message.partition, event.message.value)
                    await asyncio.sleep(0)
                await self._pending.wait_for_room(idle=len(events) < TURN)
        except Exception as error:
            self.fail(error)
            await asyncio.Event().wait()

    async def _take(self, partition: int, records: BatchRecords) -> None:
        """Add a batch of verdicts to those that are pending. Those that were taken before are left out."""
        check_partitions(self._verdicts, partition + 1, self._partitions)
        if records.begin > (begin := self._next[partition]):
            raise RuntimeError(
                f"{self._verdicts}[{partition}]: Faust skipped verdicts from offset {begin} on, before"
                f" {records.begin}"
            )
        offsets, values = records.offsets, records.values
        if any(map(bytes.startswith, values, repeat(MAGIC))):
            values = await asyncio.to_thread(self._json, partition, records)
        forgotten = self.state.meta.forgotten
        whole = batch_of(partition, offsets, [self._forgotten.rewrite(each) or each for each in values])
        records.clear()
        batch = whole.between(begin, whole.last)
        if not len(batch):
            return
        if partition in self._gaps:
            self._gaps.discard(partition)
            self._pending.since = max(self._pending.since, int(batch.seconds[0]))
        self._pending.add(batch, forgotten)
        self._newest = max(self._newest, float(batch.seconds.max()))
        self._next[partition] = batch.last + 1
        self._report(batch)

    def _json(self, partition: int, records: BatchRecords) -> list[bytes]:
        place = {"topic": self._verdicts, "partition": partition}
        return [
            self._reader.json(SimpleNamespace(offset=offset, value=value, **place))
            for offset, value in zip(records.offsets, records.values, strict=True)
        ]

    # Beside the agent.

    async def load(self) -> None:
        """Load the view."""
        view = View(self.state.host_counts)
        await in_stoppable_thread(partial(self.state.show_in, view))
        self.view, self._newest = view, max(self._newest, view.last() or 0.0)

    async def fold_on(self) -> None:
        """Count what is pending, again and again."""
        while True:
            pending = self._pending
            await pending.wait_until_due()
            async with self._writing:
                self._pending = Pending()
                pending.taken.set()
                shows = await in_thread(self.state.fold, pending, self.view, self._now())
                for place, show in enumerate(shows):
                    show()
                    if place % SLICE == 0:
                        await asyncio.sleep(0)
            pending.folded.set()

    async def sweep(self) -> None:
        """Delete expired windows periodically."""
        while True:
            now = self._now()
            self.view.sweep(now)
            await in_thread(self.state.expire, now)
            await asyncio.sleep(SWEEP_SECONDS)

    def _now(self) -> float:
        """The time by which windows expire: the clock, or a day after the newest verdict if that is earlier,
        so that a clock that is ahead deletes no figures."""
        return min(time.time(), self._newest + DAY)

    async def blank(self) -> None:
        """Remove from the state what it says of pages that are forgotten, in parts between folds."""
        pages = self._forgotten
        if pending := self._pending:  # what was read when less was forgotten
            await pending.folded.wait()
        for family in (BLOCKS, CLUSTERS):
            start: bytes | None = b""
            while start is not None:
                began = time.monotonic()
                async with self._writing:
                    some, start = await in_thread(
                        self.state.erase_some, family, start, pages.names, pages.rewrite
                    )
                    for key, row in some:
                        if isinstance(row, ClusterRow):
                            self.view.show_cluster(key.decode(), row)
                await asyncio.sleep(time.monotonic() - began)
