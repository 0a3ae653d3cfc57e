"""Monitors the deployment through Kafka: consumer groups, their lag in records and seconds, and positions.

This covers roles on other machines too.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from stream.dashboard.answers import (
    Forgetting,
    GroupLag,
    PartitionBehind,
    Process,
    RoleHealth,
    System,
    Window,
)
from stream.dashboard.counting.app import check_partitions
from stream.dashboard.deployment import groups
from stream.dashboard.deployment.changes import ChangeLog
from stream.dashboard.deployment.groups import ConsumerGroup
from stream.dashboard.deployment.lag import TopicLag, measure_lag
from stream.dashboard.deployment.lag_history import LagHistory
from stream.errors import NeardupError, StaleError
from stream.kafka import broker_metadata, clients
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import hidden_since
from stream.kafka.outage import Outage
from stream.ops.health import Health
from stream.ops.metrics import DashboardMetrics
from stream.settings import Settings

ROLES: Final = ("worker", "judge", "dashboard")
LOOK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 1.5
"""Time-out for requests to roles."""
BEHIND_SECONDS: Final = 60.0
"""A role whose lag exceeds this has the state `behind`."""
MOST_SECONDS: Final = 253_402_300_799
"""The last second that RFC 3339 can write."""
MOST_BEHIND: Final = 20
"""Partitions listed for each role: those furthest behind."""


@dataclass(frozen=True, slots=True)
class WatchedRole:
    """A role with its consumer group and input topic."""

    role: str
    group: str
    topic: str


class OwnFigures(NamedTuple):
    """What the dashboard knows by itself, now."""

    read: Callable[[], int]
    """Partitions of the verdicts topic that it reads."""
    anchors: Callable[[], int | None]
    counted: Callable[[], dict[int, int]]
    """Partition of the verdicts topic -> the next offset to count."""
    window: Callable[[], Window | None]
    requested: Callable[[], int]
    """The offset of `requests` before which all are decided."""


class Watch:
    """Polls the Kafka cluster every LOOK_SECONDS while `run` runs. `now` is the latest result."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        health: Health,
        own: OwnFigures,
    ) -> None:
        names = TopicNames(settings.namespace)
        self._settings, self._names = settings, names
        self._health = health
        self._roles = [tuple(each.split("=", 1)) for each in settings.dashboard_roles.split(",") if each]
        self._own = own
        self._watched = (
            WatchedRole("worker", names.workers, names.pages),
            WatchedRole("judge", names.judge, names.journal),
            WatchedRole("dashboard", names.dashboard(settings.dashboard_name), names.verdicts),
        )
        self._outage = Outage("a broker")
        self._bounds = dict[TopicPartition, LogBounds]()
        """Log bounds as of the last look."""
        self.lags = LagHistory(health.started)
        self.changes = ChangeLog(health.started)
        self.now = System(
            namespace=settings.namespace,
            at=time.time(),
            roles=[RoleHealth(each.role, "unknown", "not checked yet") for each in self._watched],
            groups=[],
            processes=[],
            anchors=None,
            state_bytes=None,
            partitions_read=0,
            partitions=partitions,
            error="not checked yet",
        )

    def report(self, metrics: DashboardMetrics) -> None:
        """Let the gauges of roles show the figures of the latest look, or NaN if it failed."""

        def gauge_value(role: str, value: Callable[[GroupLag], float | None]) -> float:
            group_lag = None if self.now.error else next((g for g in self.now.groups if g.role == role), None)
            figure = None if group_lag is None else value(group_lag)
            return math.nan if figure is None else figure

        for role in ROLES:
            for gauge, value in (
                (metrics.lag_records, lambda group: group.lag_records),
                (metrics.lag_seconds, lambda group: group.lag_seconds),
                (metrics.processes, lambda group: group.members),
            ):
                gauge.labels(role).set_function(partial(gauge_value, role, value))

    async def run(self) -> None:
        """Poll until cancelled. Failures are reported in `now.error`."""
        while True:
            self._health.turn()
            try:
                await self._look_until_it_fails()
            except clients.DENIED:
                raise
            except StaleError:
                raise
            except (KafkaError, NeardupError, OSError, TimeoutError) as error:
                self._report_failure(f"the brokers do not answer: {error!r}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_until_it_fails(self) -> None:
        settings = self._settings
        options = {
            "auto_offset_reset": "earliest",
            "max_partition_fetch_bytes": 64 << 10,
            "fetch_max_wait_ms": 100,
        }
        async with (
            clients.open_client(settings, clients.admin(settings)) as admin,
            clients.open_client(settings, clients.reader(settings, **options)) as consumer,
        ):
            while True:
                async with asyncio.timeout(20):
                    await self._look(admin, consumer)
                self._outage.end()
                self._health.turn()
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer) -> None:
        topics = {self._names.requests, *(each.topic for each in self._watched)}
        bounds = await broker_metadata.log_bounds(client_of(admin), topics)
        partitions = sum(key.topic == self._names.verdicts for key in bounds)
        check_partitions(self._names.verdicts, partitions, self.now.partitions)
        group_lags, roles = [], []
        for watched in self._watched:
            group = await groups.describe_group(admin, watched.group, watched.topic)
            offsets = await groups.committed_offsets(admin, watched.group)
            if watched.role == "dashboard":
                offsets |= {TopicPartition(watched.topic, p): o for p, o in self._own.counted().items()}
            self.changes.saw_group(watched.role, group, time.time())
            lag = await measure_lag(consumer, watched.topic, bounds, offsets)
            self.lags.add(watched.role, time.time(), lag)
            group_lags.append(_group_lag(watched, group, lag))
            roles.append(_health(watched.role, len(group.members), lag.seconds))
        processes, judge_gauges = await _ask(self._roles)
        for each in processes:
            self.changes.saw_process(each.role, each.url, each.started, time.time())
        anchors = judge_gauges.get("neardup_judge_anchors") or self._own.anchors()
        directory = self._settings.state_dir / self._settings.namespace / "judge"
        size = judge_gauges.get("neardup_judge_state_bytes") or await asyncio.to_thread(_size, directory)
        self.now = System(
            namespace=self._settings.namespace,
            at=time.time(),
            roles=roles,
            groups=group_lags,
            processes=processes,
            anchors=None if anchors is None else int(anchors),
            state_bytes=None if size is None else int(size),
            partitions_read=self._own.read(),
            partitions=self.now.partitions,
            error=None,
            window=_with_carried(self._own.window(), judge_gauges),
            forgetting=await self._forgetting(consumer, bounds),
            clock_ahead=judge_gauges.get("neardup_judge_append_time_ahead_seconds"),
            hidden=hidden_since(self._bounds, bounds),
        )
        self._bounds = bounds

    async def _forgetting(
        self, consumer: AIOKafkaConsumer, bounds: dict[TopicPartition, LogBounds]
    ) -> Forgetting | None:
        requests, decided = self._names.requests, self._own.requested()
        if not bounds[key := TopicPartition(requests, 0)].end:
            return None
        lag = await measure_lag(consumer, requests, bounds, {key: decided})
        since = None if lag.seconds is None or not lag.records else time.time() - lag.seconds
        return Forgetting(decided, lag.records, since)

    def _report_failure(self, why: str) -> None:
        self._outage.note(why)
        self.now.error = why
        self.now.roles = [RoleHealth(each.role, "unknown", why) for each in self._watched]


async def _ask(roles: list[tuple[str, ...]]) -> tuple[list[Process], dict[str, float]]:
    """Query the health of processes. Also returns the gauges of the leading judge, summed over labels."""
    if not roles:
        return [], {}
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        processes = await asyncio.gather(*(_process(session, role, url) for role, url in roles))
        judge_gauges: dict[str, float] = {}
        for process in processes:
            if process.role == "judge" and process.state != "unreachable":
                gauges = await _gauges(session, process.url)
                if gauges.get("neardup_judge_leading"):
                    judge_gauges = gauges
    return list(processes), judge_gauges


async def _process(session: aiohttp.ClientSession, role: str, url: str) -> Process:
    try:
        async with session.get(f"{url}/readyz") as response:
            answer = await response.json()
        failing = [name for name, holds in answer["checks"].items() if not holds]
        state = "ready" if answer["ready"] else "not ready"
        detail = (
            f"failing checks: {', '.join(failing)}" if failing else answer.get("trouble", "all checks pass")
        )
        if not answer["checks"]:
            detail = "it is starting"  # a role has no checks until its clients are connected
        return Process(role, url, state, detail, _moment(answer.get("started")))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
        return Process(role, url, "unreachable", f"{type(error).__name__}: {error}")


def _moment(value: object) -> float | None:
    """Return the time in a process's answer, or None if it has none, like that of earlier versions."""
    return float(value) if isinstance(value, int | float) and 0 < value < MOST_SECONDS else None


def _with_carried(window: Window | None, judge_gauges: dict[str, float]) -> Window | None:
    expired = judge_gauges.get("neardup_judge_expired_pages_total")
    if window is not None and expired:
        window.carried = judge_gauges["neardup_judge_expired_pages_total carried"] / expired
    return window


async def _gauges(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Return a role's metrics: name -> value, summed over labels; and name and outcome, with a space between
    -> value, where they have outcomes."""
    try:
        async with session.get(f"{url}/metrics") as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return {}
    gauges: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            gauges[sample.name] = gauges.get(sample.name, 0.0) + sample.value
            if outcome := sample.labels.get("outcome"):
                gauges[f"{sample.name} {outcome}"] = sample.value
    return gauges


def _group_lag(watched: WatchedRole, group: ConsumerGroup, lag: TopicLag) -> GroupLag:
    behind = [
        PartitionBehind(each.partition, each.records, each.seconds, group.reader(each.partition))
        for each in lag.partitions[:MOST_BEHIND]
    ]
    return GroupLag(
        role=watched.role,
        group=watched.group,
        topic=watched.topic,
        state=group.state,
        members=len(group.members),
        lag_records=lag.records,
        lag_seconds=lag.seconds,
        behind=behind,
        partitions_behind=len(lag.partitions),
    )


def _health(role: str, members: int, seconds: float | None) -> RoleHealth:
    if not members:
        return RoleHealth(role, "down", "no process in its group")
    if role == "judge":
        who = "1 leading" + (f", {members - 1} standing by" if members > 1 else "")
    else:
        who = f"{members} in its group"
    if seconds is not None and seconds > BEHIND_SECONDS:
        return RoleHealth(role, "behind", f"{who}; {seconds:.0f} s behind")
    return RoleHealth(role, "up", who)


def _size(directory: Path) -> int | None:
    """Return the size of a directory tree in bytes, or None if it does not exist."""
    if not directory.is_dir():
        return None
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:  # deleted by a compaction
                continue
    return total
