"""Helpers for tests of the worker: a running worker, pages for it, and the journal as a judge sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import ClientSession
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError
from prometheus_client.parser import text_string_to_metric_families

from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import broker_metadata, topics
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis, Rows, decode_journal
from stream.messages.verdict_options import VerdictOptions
from stream.ops.server import NAMESPACE
from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.waiting import HANG_SECONDS, until

Role = TypeVar("Role", WorkerRole, JudgeRole, ElectorRole)
SCRIPTED = "tests.kafka.fingerprinters.Scripted"
ROOT = Path(__file__).parents[2]


async def create(settings: Settings) -> TopicNames:
    await topics.create(settings, Scheme(), VerdictOptions(), seed=PUBLIC_SEED)
    await topics.wait_for_genesis(settings)  # before anything is in the journal: its commit may take a moment
    return TopicNames(settings.namespace)


class FileGate:
    """A file that pages wait for in a child."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.page = b"wait " + bytes(path)

    def open(self) -> None:
        self._path.touch()


@asynccontextmanager
async def running(role: Role) -> AsyncIterator[Role]:
    """Context manager that runs a role in this process, and stops it at the end. An error of the role ends
    the test at once."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(role.run())
            yield role
            role.stop()
            async with asyncio.timeout(HANG_SECONDS):
                await asyncio.wait([task])
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def get(role: Role, path: str) -> tuple[int, Any]:
    """Status and content of what a role answers over HTTP."""
    assert role.ops_url
    async with ClientSession() as client, client.get(role.ops_url + path) as answer:
        return answer.status, await (answer.text() if path == "/metrics" else answer.json())


async def scrape(role: Role) -> dict[str, float]:
    """Series -> value, as Prometheus reads them; without the namespace, which each must have."""
    _, text = await get(role, "/metrics")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            own = {name: value for name, value in each.labels.items() if name != NAMESPACE}
            assert len(own) < len(each.labels), each
            labels = ",".join(f"{name}={value}" for name, value in sorted(own.items()))
            found[f"{each.name}{{{labels}}}" if labels else each.name] = each.value
    return found


def working(settings: Settings) -> AbstractAsyncContextManager[WorkerRole]:
    """Context manager that runs a worker whose children obey commands in pages (see `Scripted`)."""
    return running(WorkerRole(settings, fingerprinter=SCRIPTED))


async def error_of(role: WorkerRole | JudgeRole | ElectorRole) -> Exception:
    """Run a role until it fails, and return the error."""
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await role.run()
    except TimeoutError:
        raise AssertionError("the role went on") from None
    except Exception as error:
        return error
    raise AssertionError("the role ended without an error")


async def failure_of(settings: Settings) -> Exception:
    """The error of a worker as of `working`."""
    return await error_of(WorkerRole(settings, fingerprinter=SCRIPTED))


MAIN = f"""
import asyncio
from stream.roles.worker.role import WorkerRole
from stream.settings import load

asyncio.run(WorkerRole(load(), fingerprinter="{SCRIPTED}").run())
"""


@asynccontextmanager
async def worker_process(settings: Settings, failpoint: str = "") -> AsyncIterator[subprocess.Popen[bytes]]:
    """Context manager that runs a worker in a process of its own, and kills it at the end."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "NEARDUP_FAILPOINT": failpoint,
        **settings.environment(),
    }
    process = subprocess.Popen([sys.executable, "-c", MAIN], env=environment)  # noqa: ASYNC220
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    await until(lambda: process.poll() is not None)
    return process.returncode


async def topic_id(settings: Settings) -> str:
    topic = TopicNames(settings.namespace).pages
    async with broker_metadata.connect(settings) as client:
        return await broker_metadata.topic_id(client, topic)


async def publish(settings: Settings, pages: Iterable[bytes], partition: int = 0) -> None:
    servers = settings.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, max_request_size=32 << 20) as producer:
        topic = TopicNames(settings.namespace).pages
        sent = [await producer.send(topic, page, partition=partition) for page in pages]
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(*sent)


async def read_all(settings: Settings, topic: str) -> list[Any]:
    """Return all committed records of a topic, up to the present ends."""
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [topic])
    bounds = {key: bound for key, bound in bounds.items() if bound.start < bound.stable}
    if not bounds:  # and aiokafka cannot stop a consumer that has done nothing since its start
        return []
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed", group_id=None
    ) as consumer:
        consumer.assign(list(bounds))
        found: list[Any] = []
        async with asyncio.timeout(HANG_SECONDS):
            for partition, bound in bounds.items():
                consumer.seek(partition, bound.start)
                while await consumer.position(partition) < bound.stable:
                    for records in (await consumer.getmany(partition, timeout_ms=100)).values():
                        found += records
        return found


def waits_for_genesis(logs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a role has logged that it waits for the genesis."""
    return any("the genesis of topic" in each.get("wanted", "") for each in logs)


async def journal(settings: Settings) -> list[Rows]:
    records = [
        decode_journal(r.value, r.offset)
        for r in await read_all(settings, TopicNames(settings.namespace).journal)
    ]
    return [each for each in records if not isinstance(each, Genesis)]


def judged(records: Iterable[Rows]) -> dict[tuple[str, int], list[tuple[int, str | None]]]:
    """Return (offset, URL) of the rows that a judge would judge, by topic id and partition. Fails if pages
    are missing."""
    expected: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], list[tuple[int, str | None]]] = defaultdict(list)
    for rows in records:
        first, urls = 0, rows.strings.columns().url.texts()
        for each in rows.ranges:
            key = (each.topic_id, each.partition)
            if each.opening:
                expected[key] = max(each.start, expected.get(key, 0))
            assert key in expected, f"{each} has no opening"
            assert each.start <= expected[key], f"pages from {expected[key]} to {each.start} are missing"
            for i in range(first, first + each.rows):
                offset = int(rows.offset[i])
                assert each.start <= offset < each.end
                if offset >= expected[key]:
                    found[key].append((offset, urls[i]))
            first += each.rows
            expected[key] = max(expected[key], each.end)
    return found


async def committed(settings: Settings) -> dict[int, tuple[int, str]]:
    """Return the workers' committed offset and its metadata, by partition."""
    async with admin_of(settings) as admin:
        try:
            offsets = await admin.list_consumer_group_offsets(TopicNames(settings.namespace).workers)
        except GroupCoordinatorNotAvailableError:  # a broker without any group yet
            return {}
    return {
        key.partition: (value.offset, value.metadata) for key, value in offsets.items() if value.offset >= 0
    }


async def members(settings: Settings, group: str) -> int:
    async with admin_of(settings) as admin:
        (answer,) = await admin.describe_consumer_groups([group])
    ((_, _, _, _, _, found, *_),) = answer.groups
    return len(found)


async def commit(
    settings: Settings,
    offset: int,
    metadata: str = "",
    partition: int = 0,
    *,
    group: str | None = None,
    topic: str | None = None,
) -> None:
    """Commit an offset, as an operator's tool would: by default one of the workers' group."""
    names = TopicNames(settings.namespace)
    key = TopicPartition(topic or names.pages, partition)
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers,
        group_id=group or names.workers,
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([key])
        await consumer.commit({key: (offset, metadata)})


@asynccontextmanager
async def admin_of(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()
