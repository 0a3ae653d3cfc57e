"""All metrics of all roles. `docs/metrics.md` is generated from this module.

Names follow Prometheus' conventions: base units, `_total` for counters. Each role has its own registry, so
that roles in one process do not share metrics.
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
    """A metric as listed in the documentation."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Metrics:
    """Base class of a role's metrics. `/metrics` serves its `registry`."""

    role: ClassVar[str]
    stage_seconds: Histogram
    """Of roles that have stages."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.defined: list[Definition] = []
        ProcessCollector(registry=self.registry)
        self._gauge(
            "neardup_build_info",
            "Always 1; the labels are the role and its version.",
            "role", "version", "python",
        ).labels(self.role, our_version(), platform.python_version()).set(1)  # fmt: skip
        self.awaited_transaction = self._gauge(
            f"neardup_{self.role}_awaited_transaction_seconds",
            "Seconds for which this role has waited for the end of an open transaction that hides the last "
            "records of a partition; no series if it waits for none.",
            "topic", "partition",
        )  # fmt: skip

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.defined.append(Definition(name, "counter", labels, meaning))
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        self.defined.append(Definition(name, "gauge", labels, meaning))
        return Gauge(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        self.defined.append(Definition(name, "histogram", labels, meaning))
        return Histogram(name, meaning, labels, registry=self.registry, buckets=buckets)


class StateMetrics(Metrics):
    """Base class of the metrics of a role with a state directory."""

    def _add_state(self) -> None:
        prefix = f"neardup_{self.role}"
        self.state_bytes = self._gauge(
            f"{prefix}_state_bytes", "Size of the state directory, as of the last flush."
        )
        self.state_free_bytes = self._gauge(
            f"{prefix}_state_free_bytes",
            "Free space of the state directory's file system, as of the last flush.",
        )
        self.scrubbed = self._gauge(
            f"{prefix}_scrubbed_timestamp_seconds",
            "Time of the last complete scrub of the state, in seconds since the epoch; until the first one, "
            f"the start of this {self.role}; 0 with scrub_hours 0.",
        )
        self.damaged_files = self._gauge(
            f"{prefix}_damaged_files",
            "Files that the last scrub found damaged; unchanged by a rebuild until the next scrub.",
        )
        self.erasing = self._gauge(
            f"{prefix}_erase_waiting_seconds",
            f"For how long this {self.role} has known that its directory, or a topic that it writes, has "
            "something forgotten to erase; 0 if there is nothing.",
        )


class CheckpointMetrics(StateMetrics):
    """Base class of the metrics of a role that makes checkpoints of its state."""

    def _add_checkpoints(self) -> None:
        prefix = f"neardup_{self.role}_checkpoint"
        self.checkpoint_failures = self._counter(
            f"{prefix}_failures_total", "Checkpoints that failed; each is tried again."
        )
        self.checkpoint_uploaded = self._counter(
            f"{prefix}_uploaded_bytes_total", "Bytes of files uploaded for checkpoints."
        )
        self.checkpoint_interval = self._gauge(
            f"{prefix}_interval_seconds", f"Time between checkpoints; 0 if the {self.role} makes none."
        )
        self.checkpointed = self._gauge(
            f"{prefix}_timestamp_seconds",
            "Time at which this directory's newest checkpoint had all that was applied, in seconds since the "
            f"epoch; before the first one, the start of this {self.role}; 0 if it makes none.",
        )
        self.checkpoint_bytes = self._gauge(f"{prefix}_bytes", "Size of this directory's newest checkpoint.")
        self.checkpoint_uploading = self._gauge(
            f"{prefix}_uploading_bytes",
            "What is still to be uploaded of the running checkpoint; 0 if none runs.",
        )


class WorkerMetrics(Metrics):
    """Fingerprints pages into the journal. Pages that are read again after a crash are counted again."""

    role = "worker"

    def __init__(self) -> None:
        super().__init__()
        self.consumed = self._counter(
            "neardup_worker_consumed_records_total", "Page messages read from the pages topic."
        )
        self.consumed_bytes = self._counter(
            "neardup_worker_consumed_bytes_total", "Bytes of the values of page messages read."
        )
        self.pages = self._counter(
            "neardup_worker_pages_total",
            "Pages appended to the journal, by status: ready, short, insufficient or rejected.",
            "status",
        )
        for status in ("ready", "short", "insufficient", "rejected"):
            self.pages.labels(status)
        self.quality_ignored = self._counter(
            "neardup_worker_quality_ignored_total",
            "Pages appended to the journal whose quality is no finite number, and counts as none.",
        )
        self.lost = self._counter(
            "neardup_worker_lost_pages_total", "Offsets that retention deleted before they were read."
        )
        self.batch_rows = self._histogram(
            "neardup_worker_batch_rows", "Pages in one journal record.", ROW_BUCKETS
        )
        self.batch_seconds = self._histogram(
            "neardup_worker_batch_seconds",
            "Time per journal record: topic id check, dead letters and append.",
            STAGE_BUCKETS,
        )
        self.stage_seconds = self._histogram(
            "neardup_worker_stage_seconds",
            "Time per stage: fingerprint (a chunk in a child process, including the wait for the process), "
            "verify (topic id check at the partition leaders), bury (dead letters), append, commit.",
            STAGE_BUCKETS,
            "stage",
        )
        self.lag_records = self._gauge(
            "neardup_worker_lag_records",
            "Records of an assigned partition, up to its last stable offset, not in the journal yet.",
            "partition",
        )
        self.lag_seconds = self._gauge(
            "neardup_worker_lag_seconds",
            "Age of the oldest page in flight, i.e. read but not in the journal yet; 0 without any.",
        )
        self.held_bytes = self._gauge(
            "neardup_worker_held_bytes", "Bytes of pages and rows in memory; bounded by worker_memory."
        )
        self.paused = self._gauge(
            "neardup_worker_paused", "1 while fetching is paused because worker_memory is full."
        )
        self.refusing = self._gauge(
            "neardup_worker_refusing",
            "1 while appending is paused because the share of rejected pages exceeds reject_limit.",
        )
        self.partitions = self._gauge("neardup_worker_partitions", "Assigned partitions of the pages topic.")
        self.rebalances = self._counter(
            "neardup_worker_rebalances_total", "Assignments by the consumer group, including the first."
        )
        self.crashes = self._counter(
            "neardup_worker_child_crashes_total",
            "Fingerprinting processes that crashed or were killed while they worked on a page.",
        )


class JudgeMetrics(CheckpointMetrics):
    """Decides the journal and publishes verdicts. Counts are updated when a transaction is committed."""

    role = "judge"

    def __init__(self) -> None:
        super().__init__()
        self._add_counters()
        self._add_timers()
        self._add_gauges()
        self._add_window()
        self._add_checkpoints()

    def _add_counters(self) -> None:
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
            "Candidate anchors found in the tables, by outcome: verified (similar enough) or refused.",
            "outcome",
        )
        for outcome in ("verified", "refused"):
            self.candidates.labels(outcome)
        self.candidates_per_page = self._histogram(
            "neardup_judge_candidates_per_page",
            "Candidates per fingerprinted page, averaged over a batch.",
            CANDIDATE_BUCKETS,
        )
        self.probes = self._counter(
            "neardup_judge_probes_total", "Buckets looked up, by tier: ram or rocksdb.", "tier"
        )
        self.superseded = self._counter(
            "neardup_judge_superseded_anchors_total",
            "Anchors that no longer match because the page of their URL changed.",
        )
        self.orphans = self._counter(
            "neardup_judge_orphans_total",
            "Recrawls whose cluster had no live anchor any more, which were judged again, by outcome: anchor "
            "(of a cluster of its own) or member (of another one).",
            "outcome",
        )
        for outcome in ("anchor", "member"):
            self.orphans.labels(outcome)
        self.full_buckets = self._counter(
            "neardup_judge_full_buckets_total",
            "Compared pages of whose thirty buckets none was open: all held `bucket_cap` anchors or more.",
        )
        self.cut_lists = self._counter(
            "neardup_judge_cut_lists_total",
            "Compared pages with more candidates than `compared`, so that some were left out.",
        )
        self.expired = self._counter(
            "neardup_judge_expired_pages_total",
            "Pages whose lifetime ended, by outcome: carried (a verdict named them) or gone.",
            "outcome",
        )
        for outcome in ("carried", "gone"):
            self.expired.labels(outcome)
        self.forgotten = self._counter(
            "neardup_judge_forgotten_pages_total", "Pages forgotten on request, all versions of a URL."
        )
        self.redelivered = self._counter(
            "neardup_judge_redelivered_rows_total", "Journal rows dropped because they were already judged."
        )
        self.gaps_met = self._counter(
            "neardup_judge_source_gaps_total",
            "Gaps met in source partitions, which then wait for the missing pages.",
        )
        self.rebalances = self._counter(
            "neardup_judge_rebalances_total",
            "Rebalances of the judges' consumer group, including the first assignment.",
        )

    def _add_timers(self) -> None:
        self.batch_rows = self._histogram(
            "neardup_judge_batch_rows", "Verdicts in one transaction.", ROW_BUCKETS
        )
        self.batch_seconds = self._histogram(
            "neardup_judge_batch_seconds",
            "Time per batch, from available journal records to their application to the state.",
            STAGE_BUCKETS,
        )
        self.stage_seconds = self._histogram(
            "neardup_judge_stage_seconds",
            "Time per stage: decide, prepare (state changes), encode (records to publish), publish (one "
            "transaction), apply, ledger (a record of all sources), turn (pages expire), forget (pages on "
            "request); concurrent with them flush, checkpoint and search (for pages to forget).",
            STAGE_BUCKETS,
            "stage",
        )
        self.event_age = self._histogram(
            "neardup_judge_event_age_seconds",
            "Time from the Kafka timestamp of a page to its committed verdict, for the oldest page of each "
            "source range. It compares the producer's clock with the judge's.",
            AGE_BUCKETS,
        )

    def _add_gauges(self) -> None:
        self.leading = self._gauge("neardup_judge_leading", "1 while this judge leads, 0 while it stands by.")
        self.lag_records = self._gauge(
            "neardup_judge_lag_records", "Journal records that the leader has not judged yet; 0 on standby."
        )
        self.lag_seconds = self._gauge(
            "neardup_judge_lag_seconds",
            "Age of the oldest journal record that the leader has read but not judged yet; 0 without any.",
        )
        self.journal_position = self._gauge(
            "neardup_judge_journal_position", "The next journal offset to apply to the state."
        )
        self.replay_remaining = self._gauge(
            "neardup_judge_replay_remaining_records",
            "Decision records not applied to the state yet; falls to 0 during recovery, rebuild and standby.",
        )
        self.source_gaps = self._gauge(
            "neardup_judge_waiting_sources", "Source partitions that currently wait for missing pages."
        )
        self.anchors = self._gauge(
            "neardup_judge_anchors", "Anchors in the tables, by tier: ram or rocksdb.", "tier"
        )
        self.dead_anchors = self._gauge(
            "neardup_judge_dead_anchors", "Superseded anchors that are still in the tables."
        )
        self.generations = self._gauge(
            "neardup_judge_generations", "Generations of anchors frozen into RocksDB."
        )
        self._add_state()

    def _add_window(self) -> None:
        self.lifetime = self._gauge(
            "neardup_judge_lifetime_seconds", "The deployment's lifetime; 0 if pages do not expire."
        )
        self.log_time = self._gauge(
            "neardup_judge_log_timestamp_seconds",
            "Log time, in seconds since the epoch; 0 before the first journal record. It stands still while "
            "no page comes.",
        )
        self.oldest_page = self._gauge(
            "neardup_judge_oldest_page_timestamp_seconds",
            "Log time at which the oldest page that has not expired was judged, or carried, to a slot; 0 "
            "without a lifetime.",
        )
        self.late_pages = self._gauge(
            "neardup_judge_late_expiry_pages",
            "Pages that have expired by log time and are still there, as after an outage. Each turn removes "
            "some.",
        )
        self.late = self._gauge(
            "neardup_judge_late_expiry_seconds",
            "How much longer than a lifetime the oldest of these have lived, in log time; 0 without any.",
        )
        self.ahead = self._gauge(
            "neardup_judge_append_time_ahead_seconds",
            "How far the append times of the journal records judged last are ahead of the leading judge's "
            "clock, by the broker that leads the journal; 0 up to ten minutes.",
            "broker",
        )
        self.requests_waiting = self._gauge(
            "neardup_judge_forget_requests_waiting", "Requests to forget that the leader has not decided yet."
        )
        self.request_age = self._gauge(
            "neardup_judge_forget_waiting_seconds", "Age of the oldest of these; 0 without any."
        )


class TrimMetrics(Metrics):
    """Trims decisions and journal, with `--every`."""

    role = "trim"

    def __init__(self) -> None:
        super().__init__()
        self.interval = self._gauge("neardup_trim_interval_seconds", "Time between trims, as `--every` says.")
        self.keep = self._gauge(
            "neardup_trim_keep_seconds", "Age below which nothing is deleted, as `--keep` says."
        )
        self.deleted = self._counter(
            "neardup_trim_deleted_offsets_total",
            "Offsets deleted, including those of transaction markers, by topic: decisions or journal.",
            "topic",
        )
        self.log_start = self._gauge("neardup_trim_log_start", "First offset of a log.", "topic")
        self.log_end = self._gauge("neardup_trim_log_end", "Offset after the last one of a log.", "topic")
        self.oldest = self._gauge(
            "neardup_trim_oldest_timestamp_seconds",
            "Append time of the first record of a log, in seconds since the epoch; 0 if it has none.",
            "topic",
        )
        self.held = self._gauge(
            "neardup_trim_held",
            "1 for what holds the logs up: keep, checkpoint or elector, as always in the end; or none, "
            "unverified, logs, replicas, store, brokers or transaction, which are problems.",
            "reason",
        )
        self.verified = self._gauge(
            "neardup_trim_verified_timestamp_seconds",
            "When the judge's newest kept checkpoint that is verified was made, in seconds since the epoch; "
            "0 without any.",
        )
        self.damaged = self._gauge(
            "neardup_trim_damaged_checkpoints", "Kept checkpoints that the last trim found damaged."
        )
        self.completed = self._gauge(
            "neardup_trim_completed_timestamp_seconds",
            "When a trim last ended without a problem, in seconds since the epoch; before the first one, the "
            "start of this process.",
        )


class ElectorMetrics(CheckpointMetrics):
    """Elects the best page of each cluster."""

    role = "elector"

    def __init__(self) -> None:
        super().__init__()
        self.rows = self._counter(
            "neardup_elector_rows_total",
            "Pages applied to the state, without rejected ones.",
        )
        self.records = self._counter(
            "neardup_elector_records_total", "Records written to the topic, by `because`.", "because"
        )
        self.stage_seconds = self._histogram(
            "neardup_elector_stage_seconds",
            "Time per stage: apply (a batch of decisions), elect (all that is due), erase (what was "
            "forgotten); concurrent with them flush and checkpoint.",
            STAGE_BUCKETS,
            "stage",
        )
        self.lag_records = self._gauge(
            "neardup_elector_lag_records", "Decision records not applied to the state yet."
        )
        self.lag_seconds = self._gauge(
            "neardup_elector_lag_seconds", "Age of the newest decisions that are applied, while some are not."
        )
        self.urls = self._gauge("neardup_elector_urls", "URLs whose newest version is in a cluster.")
        self.clusters = self._gauge(
            "neardup_elector_clusters",
            "Clusters that have, or had, more than their first URL, or of which something was told.",
        )
        self.due = self._gauge(
            "neardup_elector_due_clusters",
            "Clusters of which something is to be told within `elect_seconds`.",
        )
        self.journal_position = self._gauge(
            "neardup_elector_journal_position", "The next journal offset to apply to the state."
        )
        self._add_state()
        self._add_checkpoints()


class DashboardMetrics(CheckpointMetrics):
    """Aggregates verdicts. The aggregated figures are served by its JSON API, not as metrics."""

    role = "dashboard"

    def __init__(self) -> None:
        super().__init__()
        self.verdicts = self._counter(
            "neardup_dashboard_verdicts_total",
            "Verdicts counted by this process, each exactly once, by verdict.",
            "verdict",
        )
        self.listeners = self._gauge(
            "neardup_dashboard_listeners", "Open browser pages that receive new verdicts."
        )
        self.lookups = self._counter(
            "neardup_dashboard_lookups_total",
            "Pages that clients asked to look up, by outcome: admitted, or refused, without a token or beyond"
            " `dashboard_lookups`.",
            "outcome",
        )
        self.lookups_near_one_anchor = self._gauge(
            "neardup_dashboard_lookups_near_one_anchor",
            "The most pages looked up in the last hour that one and the same anchor was the most similar to.",
        )
        self.near_one_anchor = self._gauge(
            "neardup_dashboard_pages_near_one_anchor",
            "The most pages of one host, among the latest 5,000 verdicts, that are like or nearest to one"
            " anchor of another host.",
        )
        self.lag_records = self._gauge(
            "neardup_dashboard_role_lag_records",
            "Records of a role's input topic that its group has not read, as the dashboard measures it, also"
            " while no process of the role runs; NaN if unknown.",
            "role",
        )
        self.lag_seconds = self._gauge(
            "neardup_dashboard_role_lag_seconds",
            "Age of the oldest of them; 0 without any, NaN if unknown.",
            "role",
        )
        self.processes = self._gauge(
            "neardup_dashboard_role_processes",
            "Processes in the role's consumer group; NaN if unknown.",
            "role",
        )
        self.stage_seconds = self._histogram(
            "neardup_dashboard_stage_seconds",
            "Time per stage, concurrent with others: flush (of what is counted), checkpoint.",
            STAGE_BUCKETS,
            "stage",
        )
        self._add_state()
        self._add_checkpoints()


def our_version() -> str:
    """Return the installed version of neardup, or `unknown`."""
    try:
        return version("neardup-stream")
    except PackageNotFoundError:  # a source tree that was not installed
        return "unknown"
