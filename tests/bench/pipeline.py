"""A deployment of real processes for benchmarks: published to, and read from its verdicts."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings, load
from stream.supervisor import Supervisor, deployment

PARTITIONS = 8
STOP_SECONDS = 20.0
LEAST_SECONDS = 2.0
"""Of a window that is worth a figure."""
PATIENCE = 60.0
"""Seconds without a verdict after which a run is given up."""


class TooFewPagesError(NeardupError):
    """This machine is too fast for so many pages: they are through before anything is measured."""


def with_enough(run: Callable[[int], Coroutine[Any, Any, dict[str, Any]]], count: int) -> dict[str, Any]:
    """Figures of a run with so many pages, or with twice as many as long as they are too few."""
    while True:
        try:
            return asyncio.run(run(count))
        except TooFewPagesError as error:
            count *= 2
            sys.stderr.write(f"{error}: once more with {count}\n")


def settings_for(servers: str, directory: Path, **flags: Any) -> Settings:
    """Settings of a new namespace with small latency and real memory."""
    namespace = f"bench-{secrets.token_hex(4)}"
    flags = {"partitions": PARTITIONS} | flags
    return load(
        bootstrap_servers=servers, namespace=namespace, dev=True, state_dir=directory / namespace, **flags
    )


@asynccontextmanager
async def ours(settings: Settings, workers: int) -> AsyncIterator[Settings]:
    """Workers and a judge as processes; their logs in the state directory."""
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    logs = settings.state_dir
    logs.mkdir(parents=True, exist_ok=True)
    async with Supervisor(deployment(settings, workers, logs), STOP_SECONDS):
        yield settings


@asynccontextmanager
async def faust_job(settings: Settings) -> AsyncIterator[Settings]:
    """The baseline as one process."""
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    directory = settings.state_dir
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "faust.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.baselines.faust_job",
            settings.bootstrap_servers, settings.namespace, str(directory), "worker",
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield settings
        finally:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """A crawler's producer, which compresses pages as `neardup publish` does."""
    made = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, compression_type="zstd", linger_ms=2,
        max_request_size=16 << 20,
    )  # fmt: skip
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def verdicts(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of all verdicts, from the first on."""
    consumer = AIOKafkaConsumer(
        TopicNames(settings.namespace).verdicts,
        bootstrap_servers=settings.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@dataclass(slots=True)
class SteadyState:
    """What came out while a deployment was in full swing."""

    pages_per_second: float = 0.0
    verdicts: dict[str, str] = field(default_factory=dict)
    """URL -> verdict, of all pages answered, also outside the window."""
    processor_us_a_page: dict[str, float] = field(default_factory=dict)
    """Who spent how much within the window; `bench` is the crawler and the reader of verdicts."""
    largest_rss_mib: dict[str, int] = field(default_factory=dict)
    """The largest process of each kind, at the end."""


async def steady(
    settings: Settings, values: Sequence[bytes], *, ahead: int, warm: float, seconds: float
) -> SteadyState:
    """Verdicts a second in a window of `seconds`, or until one has come. It begins `warm` seconds after the
    first verdict.

    All the while, the crawler keeps `ahead` pages in front of the verdicts, so that its work is spread over
    the window as it is for ever in a crawl, and neither the first seconds (processes start, code is compiled,
    dictionaries load) nor the last (some are done before others) count. A fast machine that has been sent all
    `values` ends the window there. Raises TooFewPagesError when that leaves less than LEAST_SECONDS of it.
    """
    found = SteadyState()
    opens = closes = 0.0
    before, spent = 0, {}
    async with verdicts(settings) as consumer, producer(settings) as sender:
        sending = iter(enumerate(values))
        sent, heard = 0, time.monotonic()
        while not closes or len(found.verdicts) == before or time.perf_counter() < closes:
            for number, value in islice(sending, max(0, len(found.verdicts) + ahead - sent)):
                await sender.send(TopicNames(settings.namespace).pages, value, partition=number % PARTITIONS)
                sent += 1
            for url, verdict in await _read(consumer, 0.05):
                found.verdicts[url] = verdict
                heard = time.monotonic()
            now = time.perf_counter()
            if found.verdicts and not opens:
                opens = now + warm
            if opens and not closes and now >= opens:
                opens, closes = now, now + seconds
                before, spent = len(found.verdicts), processor_seconds()
            if sent == len(values):
                if not closes or now - opens < min(LEAST_SECONDS, seconds):
                    raise TooFewPagesError(
                        f"bench: {sent} pages were sent before a window of {LEAST_SECONDS} s"
                    )
                if len(found.verdicts) > before:
                    break
            if time.monotonic() - heard > PATIENCE:
                raise NeardupError(f"bench: {len(found.verdicts)} verdicts, then none for {PATIENCE} s")
    count = len(found.verdicts) - before
    found.pages_per_second = count / (now - opens)
    found.processor_us_a_page = {
        who: (seconds - spent.get(who, 0.0)) / count * 1e6 for who, seconds in processor_seconds().items()
    }
    for who, process in _started():
        with suppress(psutil.NoSuchProcess):
            rss = process.memory_info().rss >> 20
            found.largest_rss_mib[who] = max(found.largest_rss_mib.get(who, 0), rss)
    return found


def processor_seconds() -> dict[str, float]:
    """Of this process (`bench`), and of all that it has started, by what they are."""
    spent = {"bench": time.process_time()}
    for who, process in _started():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent[who] = spent.get(who, 0.0) + times.user + times.system
    return spent


def _started() -> Iterator[tuple[str, psutil.Process]]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            yield next((who for mark, who in _KINDS.items() if mark in words), "others"), process


_KINDS = {
    "kafka.Kafka": "broker",
    "stream.children.child": "children",
    "faust_job": "faust",
    " worker": "worker",
    " judge": "judge",
}
"""What the command line of a process says -> whose it is."""


async def _read(consumer: AIOKafkaConsumer, seconds: float) -> list[tuple[str, str]]:
    """URLs and verdicts of the next records, possibly none."""
    found = await consumer.getmany(timeout_ms=int(seconds * 1000))
    said = (_SAID.decode(record.value) for records in found.values() for record in records)
    return [(each.url, each.verdict) for each in said]


class _VerdictLine(msgspec.Struct):
    """What is wanted of a verdict, ours or the Faust job's."""

    url: str
    verdict: str


_SAID = msgspec.json.Decoder(_VerdictLine)
