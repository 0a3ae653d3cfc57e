"""A deployment with probers for benchmarks: processes of a judge and probers, with the bench as their worker.

It appends made records to the journal, and reads from the decisions when they are decided: verdicts can be
read from the same moment on, as they are in the same transaction.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from numpy.typing import NDArray

from stream.brokers.embedded import EmbeddedBroker
from stream.brokers.local_broker import LocalBroker
from stream.checkpoints.requests import CheckpointRequests
from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.decision import decode_decisions
from stream.messages.verdict_options import VerdictOptions
from stream.settings import Settings, load
from tests.bench.pipeline import PARTITIONS, processor_seconds
from tests.waiting import until

PATIENCE: Final = 90.0
"""Seconds without a decision after which a run is given up."""
TICK: Final = 0.002
STOP_SECONDS: Final = 120.0


class Decided(NamedTuple):
    """When a decision could be read, and the journal offset up to which it goes."""

    at: float
    end: int


class Spent(NamedTuple):
    """What judging some rows took."""

    seconds: float
    judge: float
    """Processor seconds of the judge, of all probers, and of the broker."""
    probers: float
    broker: float


class ProbedDeployment:
    """A journal, a judge, and probers. See `deployed`."""

    def __init__(self, settings: Settings, broker: LocalBroker) -> None:
        self.settings, self.names, self._broker = settings, TopicNames(settings.namespace), broker
        self.decided: list[Decided] = []
        self.appended = 0
        """The end of the journal: as the offset after the genesis is 1, the number of records and 1."""
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._news = asyncio.Event()
        self._heard = time.monotonic()
        self._producer: AIOKafkaProducer

    async def start(self, name: str, role: str, **changes: Any) -> None:
        """Start a role. Its directory is that of `name`, whoever had it before."""
        settings = self.settings.model_copy(
            update={"state_dir": self.settings.state_dir / name, "ops_port": -1, **changes}
        )
        self.log(name).parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "stream.cli", role,
                env=os.environ | settings.environment(), stdout=log, stderr=log,
            )  # fmt: skip

    def log(self, name: str) -> Path:
        """The log of a role."""
        return self.settings.state_dir / f"{name}.log"

    async def stop(self, name: str) -> None:
        """End a role orderly."""
        process = self._processes.pop(name)
        process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()

    async def kill(self, name: str) -> float:
        """Kill a role by SIGKILL. Returns when."""
        process, at = self._processes.pop(name), time.monotonic()
        process.kill()
        await process.wait()
        return at

    def count(self, name: str, event: str) -> int:
        """How many times the log of a role has an event."""
        return self.log(name).read_text("utf-8", "replace").count(f'"event": "{event}"')

    def last(self, names: Sequence[str], event: str) -> str:
        """Which of these roles logged an event last."""
        times = dict.fromkeys(names, "")
        for name in names:
            for line in self.log(name).read_text("utf-8", "replace").splitlines():
                if f'"event": "{event}"' in line:
                    times[name] = json.loads(line)["timestamp"]
        return max(times, key=lambda name: times[name])

    async def logged(self, name: str, event: str, count: int = 1) -> None:
        """Wait until the log of a role has an event so many times."""

        def is_there() -> bool:
            self._refuse_ended()
            return self.count(name, event) >= count

        await until(is_there)

    async def loaded(self, segments: int, probers: Sequence[str]) -> None:
        """Wait until these probers have loaded so many segments."""

        def is_there() -> bool:
            self._refuse_ended()
            return sum(self.count(name, "segment_loaded") for name in probers) >= segments

        await until(is_there)

    def _refuse_ended(self) -> None:
        for name, process in self._processes.items():
            if process.returncode is not None:
                tail = self.log(name).read_text("utf-8", "replace")[-2000:]
                raise NeardupError(f"bench: {name} ended with exit code {process.returncode}: {tail}")

    async def append(self, records: Iterable[bytes]) -> int:
        """Append records to the journal, as fast as the broker takes them. Returns its end."""
        topic = self.names.journal
        sent = [await self._producer.send(topic, each, partition=0) for each in records]
        await self._producer.flush()
        if sent:
            self.appended = (await sent[-1]).offset + 1
        return self.appended

    async def judged(self, end: int) -> float:
        """Wait until the journal is decided up to `end`. Returns when that could be read."""
        self._heard = time.monotonic()
        while not self.decided or self.decided[-1].end < end:
            self._refuse_ended()
            if time.monotonic() - self._heard > PATIENCE:
                raise NeardupError(f"bench: nothing was decided for {PATIENCE:g} s")
            self._news.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._news.wait()
            except TimeoutError:
                pass
        return next(each.at for each in reversed(self.decided) if each.end >= end)

    async def spent(self, records: Sequence[bytes]) -> Spent:
        """Append records at once, and return what it takes until they are decided."""
        before, began = self._seconds(), time.perf_counter()
        await self.judged(await self.append(records))
        took, after = time.perf_counter() - began, self._seconds()
        return Spent(took, *(after[who] - before[who] for who in ("judge", "probers", "broker")))

    def _seconds(self) -> dict[str, float]:
        """Processor seconds so far."""
        found = {"judge": 0.0, "probers": 0.0, "broker": processor_seconds().get("broker", 0.0)}
        for name, process in self._processes.items():
            times = psutil.Process(process.pid).cpu_times()
            found["judge" if name == "judge" else "probers"] += times.user + times.system
        return found

    async def latencies(self, records: Sequence[bytes], interval: float) -> NDArray[np.float64]:
        """Append a record every so many seconds. Returns the seconds until each is decided (n,)."""
        sent = list[tuple[int, float]]()
        began = time.perf_counter()
        for number, each in enumerate(records):
            if (early := number * interval - (time.perf_counter() - began)) > 0:
                await asyncio.sleep(early)
            at = time.monotonic()
            made = await self._producer.send_and_wait(self.names.journal, each, partition=0)
            sent.append((made.offset + 1, at))
        self.appended = sent[-1][0]
        await self.judged(self.appended)
        ends, times = np.array([(each.end, each.at) for each in self.decided]).T
        first = np.searchsorted(ends, [end for end, _ in sent])
        found: NDArray[np.float64] = times[first] - np.array([at for _, at in sent])
        return found

    async def export(self, segments: int) -> None:
        """Have the judge export so many segments, which must be full."""
        while self.count("judge", "segment") < segments:  # a decision can be read before it is applied
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        requests = CheckpointRequests(self.settings.state_dir / "judge" / self.settings.namespace / "judge")
        request = requests.ask()

        async def is_answered() -> bool:
            self._refuse_ended()
            return requests.answer_to(request) is not None

        await until(is_answered)
        requests.withdraw()

    def topic_bytes(self, topic: str) -> int:
        """Bytes of a topic on the broker, which are those that a reader of all of it fetches."""
        assert isinstance(self._broker, EmbeddedBroker)
        logs = self._broker.log.parent.rglob(f"{topic}-*/*.log")
        return sum(path.stat().st_size for path in logs)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        servers = self.settings.bootstrap_servers
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, acks="all", max_batch_size=1 << 20,
            max_request_size=2 << 20,
        )  # fmt: skip
        consumer = AIOKafkaConsumer(
            self.names.decisions, bootstrap_servers=servers, isolation_level="read_committed",
            auto_offset_reset="earliest", fetch_max_wait_ms=500,
        )  # fmt: skip
        async with self._producer, consumer:
            reading = asyncio.create_task(self._read(consumer))
            try:
                yield
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            at, decisions = time.monotonic(), decode_decisions(record.value, record.offset)
            if not self.decided or decisions.end > self.decided[-1].end:
                self.decided.append(Decided(at, decisions.end))
                self._heard = at
                self._news.set()


@asynccontextmanager
async def deployed(broker: LocalBroker, directory: Path, **flags: Any) -> AsyncIterator[ProbedDeployment]:
    """A deployment without roles, which ends those that are started. Raises NeardupError unless the broker is
    an embedded one, as topics are measured by its files."""
    if not isinstance(broker, EmbeddedBroker):
        raise NeardupError(f"bench probers: {broker.description} is none of whose logs the size is known")
    namespace = f"bench-{secrets.token_hex(4)}"
    settings = load(
        bootstrap_servers=broker.bootstrap_servers, namespace=namespace, dev=True, partitions=PARTITIONS,
        state_dir=directory / namespace, checkpoints=str(directory / namespace / "objects"), **flags,
    )  # fmt: skip
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)
    deployment = ProbedDeployment(settings, broker)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(deployment._connected())
        try:
            yield deployment
        finally:
            for name in list(deployment._processes):
                await deployment.kill(name)
