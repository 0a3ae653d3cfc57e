"""The demo: runs a whole deployment on a real crawl, and observes it through Kafka like any consumer."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.kafka import broker_metadata, clients, topics
from stream.kafka.names import TopicNames
from stream.kafka.verdict_values import VerdictReader
from stream.messages.best import BestRecord, decode_best
from stream.messages.verdict import VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.audit import Findings, audit, committed_records
from stream.roles.publisher import publish
from stream.settings import Settings, load
from stream.sources.source import Source
from stream.supervisor import Supervisor, dashboard, deployment

WORKERS: Final = 2
GENERATION: Final = 64
"""Anchors per generation and pages per batch, small so that most candidates are found in RocksDB."""
_GAUGE: Final = re.compile(r"^neardup_elector_(journal_position|due_clusters)\{[^}]*\} (\S+)$", re.MULTILINE)
QUIET_SECONDS: Final = 60.0
"""The demo gives up when no role logs anything before it is ready, or no verdict arrives, for this long."""


@dataclass(slots=True)
class DemoOutcome:
    """Results of the demo, gathered from the verdicts topic."""

    published: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    duplicates: list[VerdictRecord] = field(default_factory=list)
    across_partitions: int = 0
    """Duplicates whose anchor is on another partition of the pages topic."""
    rocksdb_probes: int = 0
    swapped: list[BestRecord] = field(default_factory=list)
    """The last record of each cluster of which another page than the first one is kept."""
    seconds: float = 0.0
    """Time from the first published page to the last verdict."""
    findings: Findings = field(default_factory=Findings)

    @property
    def pages_per_second(self) -> float:
        """Throughput from the first published page to the last verdict."""
        return self.published / self.seconds if self.seconds else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the last line of `--json`."""
        return {
            "pages": self.findings.pages,
            "verdicts": dict(self.verdicts),
            "missing": self.findings.missing,
            "repeated": self.findings.repeated,
            "seconds": round(self.seconds, 3),
            "pages_per_second": round(self.pages_per_second, 1),
            "across_partitions": self.across_partitions,
            "rocksdb_probes": self.rocksdb_probes,
            "swapped": len(self.swapped),
        }


def demo_settings(bootstrap_servers: str, namespace: str, directory: Path) -> Settings:
    """Return settings for a small deployment on one machine, with all frozen anchors in RocksDB."""
    return load(
        bootstrap_servers=bootstrap_servers,
        namespace=namespace,
        dev=True,
        state_dir=directory / "state",
        worker_processes=1,
        tables_memory=0,
        tables_generation=GENERATION,
        judge_rows=GENERATION,
        flush_seconds=1.0,
        elect="longest",
        elect_seconds=1.0,
        dashboard_port=0,
        dashboard_open=True,
        log_format="json",
    )


async def show(
    settings: Settings,
    sources: Sequence[Source],
    directory: Path,
    *,
    report_line: Callable[[str], None],
    progress: Callable[[int, int], None],
    report_outcome: Callable[[DemoOutcome], None],
    stop: asyncio.Event | None = None,
) -> DemoOutcome:
    """Run the demo. `report_line` is called with lines of text, `progress` with the numbers of pages
    published and judged so far, beginning with (0, 0) when publishing begins, and `report_outcome` with the
    outcome.

    With `stop`, everything keeps running after the audit until it is set. Raises NeardupError if the demo
    stalls.
    """
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None)
    outcome = DemoOutcome()
    logs = directory / "logs"
    logs.mkdir()
    processes = deployment(settings, WORKERS, logs)
    page = dashboard(settings, processes, logs)
    async with Supervisor([*processes, page], settings.shutdown_seconds) as roles:
        await _wait_until_ready(logs, roles)
        report_line(f"dashboard, while this runs: {page.ops_url}/")
        started = time.monotonic()
        progress(0, 0)
        following = asyncio.create_task(_follow(settings, outcome, progress))
        try:
            published = await publish(
                settings, sources, progress=lambda count, _: progress(count, outcome.verdicts.total())
            )
            outcome.published = published
            progress(published, outcome.verdicts.total())
            outcome.seconds = await following - started
        except TimeoutError:
            raise NeardupError(
                _stall_report(logs, f"{outcome.verdicts.total()} of {outcome.published or '?'} pages judged")
            ) from None
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        outcome.findings = await audit(settings)
        outcome.rocksdb_probes = await _rocksdb_probes(logs / "judge.log", published)
        elector = next(each for each in processes if each.name == "elector")
        try:
            outcome.swapped = await _swapped(settings, f"{elector.ops_url}/metrics")
        except TimeoutError:
            raise NeardupError(_stall_report(logs, "the elector does not catch up")) from None
        report_outcome(outcome)
        if stop is not None:
            report_line(
                f"everything keeps running, with the dashboard at {page.ops_url}/, until you press Ctrl-C"
            )
            await stop.wait()
    return outcome


async def _wait_until_ready(logs: Path, roles: Supervisor) -> None:
    """Wait until the judge leads and every worker has its partitions, so start-up is not measured."""
    signs = {
        "judge.log": "leading",
        "dashboard.log": "serving",
        "elector.log": "caught_up",
        **{f"worker-{i}.log": "reading" for i in range(1, WORKERS + 1)},
    }
    last, written = time.monotonic(), 0
    for name, sign in signs.items():
        while not any(event.get("event") == sign for event in _events(logs / name)):
            roles.check()
            await asyncio.sleep(0.1)
            # Roles that compile at their first start say so in their logs: that is progress, however long.
            if (size := _log_bytes(logs)) != written:
                last, written = time.monotonic(), size
            elif time.monotonic() - last > QUIET_SECONDS:
                raise NeardupError(_stall_report(logs, "the roles are not ready"))


async def _follow(settings: Settings, outcome: DemoOutcome, progress: Callable[[int, int], None]) -> float:
    """Read verdicts until every page has one. Returns the time of the last one (`time.monotonic`)."""
    topic = TopicNames(settings.namespace).verdicts
    consumer = clients.reader(settings, topic, auto_offset_reset="earliest")
    decoder, reader = msgspec.json.Decoder(VerdictRecord), VerdictReader(settings)
    partition_of: dict[str, int] = {}
    async with clients.open_client(settings, consumer):
        last = time.monotonic()
        while not outcome.published or outcome.verdicts.total() < outcome.published:
            batches = (await consumer.getmany(timeout_ms=200)).values()
            for record in (record for records in batches for record in records):
                verdict = decoder.decode(reader.json(record))
                partition_of[verdict.id] = verdict.source.partition
                outcome.verdicts[verdict.verdict] += 1
                if verdict.verdict == "duplicate":
                    outcome.duplicates.append(verdict)
                last = time.monotonic()
            progress(outcome.published, outcome.verdicts.total())
            if time.monotonic() - last > QUIET_SECONDS:
                raise TimeoutError
    outcome.across_partitions = sum(
        partition_of[each.duplicate_of.id] != each.source.partition
        for each in outcome.duplicates
        if each.duplicate_of
    )
    return last


async def _rocksdb_probes(log: Path, judged: int) -> int:
    """Return the number of RocksDB probes from the judge's log, once it reports all pages as judged."""
    async with asyncio.timeout(QUIET_SECONDS):
        while True:
            for event in reversed(_events(log)):
                if event.get("event") == "progress" and sum(event["verdicts"].values()) >= judged:
                    return int(event["rocksdb_probes"])
            await asyncio.sleep(0.1)


async def _swapped(settings: Settings, metrics: str) -> list[BestRecord]:
    """Return the records of clusters of which another page than the first one is kept, once the elector has
    told of the whole journal. Raises TimeoutError."""
    names = TopicNames(settings.namespace)
    async with asyncio.timeout(QUIET_SECONDS), aiohttp.ClientSession() as session:
        async with broker_metadata.connect(settings) as client:
            (journal,) = (await broker_metadata.log_bounds(client, [names.journal])).values()
        while True:
            async with session.get(metrics) as response:
                gauges = dict(_GAUGE.findall(await response.text()))
            if float(gauges["journal_position"]) >= journal.stable and not float(gauges["due_clusters"]):
                break
            await asyncio.sleep(0.1)
    last: dict[str, BestRecord] = {}
    async with aclosing(committed_records(settings, names.best())) as records:
        async for record in records:
            best = decode_best(record.value, f"{record.topic} offset {record.offset}")
            last[best.cluster] = best
    return [each for each in last.values() if each.best and each.best.id != each.cluster]


def _log_bytes(logs: Path) -> int:
    return sum(log.stat().st_size for log in logs.iterdir())


def _events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _stall_report(logs: Path, what: str) -> str:
    """Return an error text for a stalled demo, with the ends of all logs."""
    ends = [f"{log.name}: {log.read_text(encoding='utf-8')[-500:].strip()}" for log in sorted(logs.iterdir())]
    return f"no progress for {QUIET_SECONDS:g} s, {what}; the logs of the roles end with:\n" + "\n".join(ends)
