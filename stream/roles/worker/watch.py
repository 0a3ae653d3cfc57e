"""Metrics and health of the worker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient

from stream.fingerprint.row import Status
from stream.kafka import broker_metadata
from stream.kafka.aiokafka_internals import fetch_progress
from stream.ops.metrics import WorkerMetrics
from stream.ops.watch import Watch
from stream.roles.worker.backlog import Backlog, JournalBatch

STATUS: Final = {each.value: each.name.lower() for each in Status}


@dataclass(slots=True)
class WorkerStats:
    """Counters since the start of the worker, and its current state."""

    pages: int = 0
    """Rows appended to the journal."""
    rejected: int = 0
    """Rejected rows appended to the journal."""
    records: int = 0
    """Records appended to the journal."""
    lost: int = 0
    """Offsets declared lost to retention."""
    crashes: int = 0
    """Fingerprinting processes that died while working."""
    held_bytes: int = 0
    """Bytes of pages and rows that are not in the journal yet."""
    most_held_bytes: int = 0
    paused: bool = False
    """Whether fetching is paused because `worker_memory` is exceeded."""
    partitions: int = 0
    """Number of assigned partitions."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Assigned partition -> start of its next range in the journal."""

    def add(self, batch: JournalBatch) -> None:
        """Count a batch that is in the journal."""
        self.pages += len(batch.rows)
        self.rejected += len(batch.rejected)
        self.records += 1
        self.lost += sum(each.end - each.start for each in batch.ranges if each.lost)
        self.offsets |= batch.ends


class WatchedWorker(Protocol):
    """The interface of a worker to its watch; implemented by `WorkerRole`."""

    stats: WorkerStats

    @property
    def opened(self) -> Backlog | None:
        """The backlog; None without partitions."""

    @property
    def refusing(self) -> bool:
        """Whether appending is paused because of `reject_limit`."""


class WorkerWatch(Watch[WorkerMetrics]):
    """Collects metrics and health of a worker, partly on demand."""

    def __init__(self, worker: WatchedWorker) -> None:
        super().__init__(WorkerMetrics())
        self._worker = worker
        self._crashes = 0

    def connected(self, client: AIOKafkaClient, consumer: AIOKafkaConsumer) -> None:
        """Report that the clients are started, before the group assigns partitions."""
        metrics, stats = self.metrics, self._worker.stats
        self.health.checks["broker"] = lambda: broker_metadata.cluster_id(client)
        self.health.checks["assigned"] = lambda: self._worker.opened is not None
        self.health.checks["accepting"] = lambda: not self._worker.refusing
        metrics.held_bytes.set_function(lambda: stats.held_bytes)
        metrics.paused.set_function(lambda: stats.paused)
        metrics.refusing.set_function(lambda: self._worker.refusing)
        metrics.partitions.set_function(lambda: stats.partitions)
        metrics.lag_seconds.set_function(self._lag_seconds)
        self._consumer = consumer

    def _lag_seconds(self) -> float:
        backlog = self._worker.opened
        oldest = backlog.oldest if backlog else None
        return 0.0 if oldest is None or oldest < 0 else max(0.0, time.time() - oldest / 1000)

    def look(self) -> None:
        """Update the metrics that cannot be computed on demand. Called periodically."""
        metrics, backlog = self.metrics, self._worker.opened
        metrics.crashes.inc(self._worker.stats.crashes - self._crashes)
        self._crashes = self._worker.stats.crashes
        metrics.lag_records.clear()
        if backlog is None:
            return
        for key, position, end in fetch_progress(self._consumer):
            # The last page may be followed by control records, which only the reader's position includes.
            start = backlog.held_from(key.partition)
            lag = end - (position if start is None else start)
            metrics.lag_records.labels(str(key.partition)).set(max(0, lag))

    def read(self, records: Sequence[Any]) -> None:
        """Count consumed messages."""
        self.metrics.consumed.inc(len(records))
        self.metrics.consumed_bytes.inc(sum(len(record.value or b"") for record in records))

    @contextmanager
    def batch(self, batch: JournalBatch) -> Iterator[None]:
        """Report that this batch is being appended while entered."""
        self.metrics.batch_rows.observe(len(batch.rows))
        with self.metrics.batch_seconds.time():
            yield

    def note_append(self, batch: JournalBatch) -> None:
        """Count a batch that is in the journal."""
        for status, count in Counter(row.status for row in batch.rows).items():
            self.metrics.pages.labels(STATUS[status]).inc(count)
        self.metrics.quality_ignored.inc(sum(row.quality_ignored for row in batch.rows))
        self.metrics.lost.inc(sum(each.end - each.start for each in batch.ranges if each.lost))
