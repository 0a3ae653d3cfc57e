"""Every metric of every role, defined here and nowhere else; `docs/metrics.md` is printed from here.

Names follow Prometheus' conventions: base units, `_total` for counters. A role's metrics live in a registry
of their own, so roles in one process do not share them.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from stream.messages.verdict import VERDICTS

STAGE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
AGE_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)
ROW_BUCKETS: Final = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 16_384, 65_536)
CANDIDATE_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 50, 100, 500, 1000, 5000)


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as the documentation lists it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Metrics:
    """What every role has. `registry` is what its `/metrics` shows."""

    role: ClassVar[str]

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.defined: list[Definition] = []
        ProcessCollector(registry=self.registry)
        self._gauge(
            "neardup_build_info",
            "Always 1; the labels say which role of which version runs.",
            "role", "version", "python",
        ).labels(self.role, our_version(), platform.python_version()).set(1)  # fmt: skip

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.defined.append(Definition(name, "counter", labels, meaning))
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        self.defined.append(Definition(name, "gauge", labels, meaning))
        return Gauge(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        self.defined.append(Definition(name, "histogram", labels, meaning))
        return Histogram(name, meaning, labels, registry=self.registry, buckets=buckets)


class WorkerMetrics(Metrics):
    """Pages -> journal. At least once: pages that are read again are counted again."""

    role = "worker"

    def __init__(self) -> None:
        super().__init__()
        self.consumed = self._counter(
            "neardup_worker_consumed_records_total", "Page messages read from the pages topic."
        )
        self.consumed_bytes = self._counter(
            "neardup_worker_consumed_bytes_total", "Bytes of the values of these messages."
        )
        self.pages = self._counter(
            "neardup_worker_pages_total",
            "Pages appended to the journal, by status: ready, short, insufficient or rejected.",
            "status",
        )
        for status in ("ready", "short", "insufficient", "rejected"):
            self.pages.labels(status)
        self.lost = self._counter(
            "neardup_worker_lost_pages_total", "Offsets that retention took before anybody read them."
        )
        self.batch_rows = self._histogram(
            "neardup_worker_batch_rows", "Pages in one journal record.", ROW_BUCKETS
        )
        self.batch_seconds = self._histogram(
            "neardup_worker_batch_seconds",
            "One journal record, from the first look at its rows to committed offsets.",
            STAGE_BUCKETS,
        )
        self.stage_seconds = self._histogram(
            "neardup_worker_stage_seconds",
            "Stages of the work: fingerprint (one chunk in a child, waiting for the child included), verify "
            "(asking the leaders for the topic id), bury (dead letters), append, commit.",
            STAGE_BUCKETS,
            "stage",
        )
        self.lag_records = self._gauge(
            "neardup_worker_lag_records",
            "Records of an assigned partition, up to its last stable offset, that are not in the journal.",
            "partition",
        )
        self.lag_seconds = self._gauge(
            "neardup_worker_lag_seconds",
            "Age of the oldest page that was read and is not in the journal; 0 when there is none.",
        )
        self.held_bytes = self._gauge(
            "neardup_worker_held_bytes", "Pages and rows held in memory; bounded by worker_memory."
        )
        self.paused = self._gauge(
            "neardup_worker_paused", "1 while nothing is fetched because worker_memory is full."
        )
        self.refusing = self._gauge(
            "neardup_worker_refusing",
            "1 while nothing is appended, because more than reject_limit of the pages would be rejected.",
        )
        self.partitions = self._gauge("neardup_worker_partitions", "Partitions of the pages topic assigned.")
        self.rebalances = self._counter(
            "neardup_worker_rebalances_total", "Assignments that the group gave, the first included."
        )
        self.crashes = self._counter(
            "neardup_worker_child_crashes_total",
            "Fingerprinting processes that died at work: a page hung or killed them.",
        )


class JudgeMetrics(Metrics):
    """Journal -> verdicts. Counted once the transaction is committed."""

    role = "judge"

    def __init__(self) -> None:
        super().__init__()
        self._count_what_was_judged()
        self._time_what_was_done()
        self._show_where_it_stands()

    def _count_what_was_judged(self) -> None:
        self.consumed = self._counter(
            "neardup_judge_consumed_records_total", "Journal records judged in committed transactions."
        )
        self.verdicts = self._counter(
            "neardup_judge_verdicts_total",
            "Verdicts published, by kind: unique, duplicate, recrawl, insufficient, rejected.",
            "verdict",
        )
        for verdict in VERDICTS:
            self.verdicts.labels(verdict)
        self.rejects = self._counter(
            "neardup_judge_rejects_total", "Verdicts `rejected`, by the verdict's reason.", "reason"
        )
        self.candidates = self._counter(
            "neardup_judge_candidates_total",
            "Anchors that the tables gave for pages, by outcome: verified (similar enough) or refused.",
            "outcome",
        )
        for outcome in ("verified", "refused"):
            self.candidates.labels(outcome)
        self.candidates_per_page = self._histogram(
            "neardup_judge_candidates_per_page",
            "Candidates a fingerprinted page, the mean of one batch.",
            CANDIDATE_BUCKETS,
        )
        self.probes = self._counter(
            "neardup_judge_probes_total", "Buckets looked up, by tier: ram or rocksdb.", "tier"
        )
        self.superseded = self._counter(
            "neardup_judge_superseded_anchors_total",
            "Anchors that stopped matching: their URL's page changed.",
        )
        self.full_buckets = self._counter(
            "neardup_judge_full_buckets_total",
            "Anchors that stayed out of at least one bucket, which was full.",
        )
        self.redelivered = self._counter(
            "neardup_judge_redelivered_rows_total", "Journal rows dropped because they had been judged."
        )
        self.gaps_met = self._counter(
            "neardup_judge_source_gaps_total", "Source partitions that began to wait for missing pages."
        )
        self.rebalances = self._counter(
            "neardup_judge_rebalances_total", "Answers of the judges' group, the first included."
        )

    def _time_what_was_done(self) -> None:
        self.batch_rows = self._histogram(
            "neardup_judge_batch_rows", "Verdicts in one transaction.", ROW_BUCKETS
        )
        self.batch_seconds = self._histogram(
            "neardup_judge_batch_seconds",
            "One batch, from journal records at hand to their application to the state.",
            STAGE_BUCKETS,
        )
        self.stage_seconds = self._histogram(
            "neardup_judge_stage_seconds",
            "Stages of the work: decide, prepare (what is to be written), encode (what is to be published), "
            "publish (one transaction), apply, flush (beside the others).",
            STAGE_BUCKETS,
            "stage",
        )
        self.event_age = self._histogram(
            "neardup_judge_event_age_seconds",
            "From a page's Kafka timestamp to its committed verdict: the oldest page of each source range. "
            "Compares the clock of whoever publishes with the judge's.",
            AGE_BUCKETS,
        )

    def _show_where_it_stands(self) -> None:
        self.leading = self._gauge("neardup_judge_leading", "1 while this judge leads, 0 while it stands by.")
        self.lag_records = self._gauge(
            "neardup_judge_lag_records", "Journal records that the leader has not judged; 0 on standby."
        )
        self.lag_seconds = self._gauge(
            "neardup_judge_lag_seconds",
            "Age of the oldest journal record that the leader has read and not judged; 0 when there is none.",
        )
        self.journal_position = self._gauge(
            "neardup_judge_journal_position", "The next journal offset that is not in the state."
        )
        self.replay_remaining = self._gauge(
            "neardup_judge_replay_remaining_records",
            "Decision records that are not in the state: recovery, rebuild and standby bring it to 0.",
        )
        self.source_gaps = self._gauge(
            "neardup_judge_waiting_sources", "Source partitions that wait for missing pages now."
        )
        self.anchors = self._gauge(
            "neardup_judge_anchors", "Anchors searched, by tier: ram or rocksdb.", "tier"
        )
        self.dead_anchors = self._gauge(
            "neardup_judge_dead_anchors", "Anchors in the tables that match no more."
        )
        self.generations = self._gauge(
            "neardup_judge_generations", "Generations of anchors frozen into RocksDB."
        )
        self.state_bytes = self._gauge(
            "neardup_judge_state_bytes", "Size of the state directory, as of the last flush."
        )
        self.scrubbed = self._gauge(
            "neardup_judge_scrubbed_timestamp_seconds",
            "When all of the state was last read from disk, seconds since the epoch; before that, when this "
            "judge started; 0 with scrub_hours 0.",
        )
        self.damaged_files = self._gauge(
            "neardup_judge_damaged_files",
            "Files that were damaged then; kept, also after a rebuild, until the next time.",
        )
        self.state_free_bytes = self._gauge(
            "neardup_judge_state_free_bytes", "Free space of its file system, as of the last flush."
        )


class DashboardMetrics(Metrics):
    """Verdicts -> figures. Its figures themselves are in its JSON API."""

    role = "dashboard"

    def __init__(self) -> None:
        super().__init__()
        self.verdicts = self._counter(
            "neardup_dashboard_verdicts_total",
            "Verdicts counted by this process, each once, by verdict.",
            "verdict",
        )
        self.listeners = self._gauge(
            "neardup_dashboard_listeners", "Pages that are open and hear of new verdicts."
        )


def our_version() -> str:
    """Of neardup, as it was installed."""
    try:
        return version("neardup-stream")
    except PackageNotFoundError:  # a source tree that was not installed
        return "unknown"
