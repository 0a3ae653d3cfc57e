"""Kafka brokers (KRaft, combined mode) in JVMs of our own on loopback, replicated as in production."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stream.brokers import embedded_guard, embedded_jars
from stream.brokers.ping import ping
from tests.chaos.kafka_cluster.ports import free_ports
from tests.chaos.kafka_cluster.proxy import HOST, Link, Network

DIRECT: Final = "DIRECT"
"""The listener without a proxy, for load and checker."""
REPLICATION: Final = "REPLICATION"
"""The listener for connections between brokers."""
START_SECONDS: Final = 300
"""Time-out for the start of a broker, which takes 4 to 30 s."""
JVM: Final = (
    "-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Broker:
    """One broker; its identity, port and data outlive its processes."""

    number: int
    directory: Path
    direct: int
    """Port of the listener DIRECT."""
    properties: dict[str, str]
    guard: subprocess.Popen[bytes] | None = None
    pid: int = 0
    stopped: bool = False
    """Whether it was sent SIGSTOP."""

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.directory / "kafka.log"

    @property
    def is_running(self) -> bool:
        """Whether its process exists, stopped or not."""
        return self.guard is not None and self.guard.poll() is None

    def java(self, *main: str) -> list[str]:
        """Return the command line of a program of Kafka's, with the JVM options of these brokers."""
        logging = embedded_jars.deployment() / "log4j2.properties"
        jars = embedded_jars.jars(lambda _: None)
        return [
            *("java", *JVM, f"-Dneardup.log={self.log}", f"-Dlog4j2.configurationFile={logging}"),
            *("-cp", f"{jars}{os.sep}*", *main),
        ]

    def format(self, cluster_id: str) -> None:
        """Write its properties and format its storage."""
        self.directory.mkdir(parents=True)
        template = (embedded_jars.deployment() / "server.properties").read_text()
        own = "\n".join(f"{name}={value}" for name, value in self.properties.items())
        self._properties.write_text(f"{template}\n{own}\n")
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties))
        done = subprocess.run(self.java(*tool), capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stderr or done.stdout)[-2000:]

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def start(self) -> None:
        """Start its process and wait until it answers."""
        # The guard ends the JVM when we die, whatever we die of.
        guard = [sys.executable, "-I", "-S", embedded_guard.__file__, str(os.getpid()), ""]
        with (self.directory / "kafka.out").open("ab") as output:
            self.guard = subprocess.Popen(
                [*guard, *self.java("kafka.Kafka", str(self._properties))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True,
            )  # fmt: skip
        assert self.guard.stdout is not None
        self.pid = int(self.guard.stdout.readline() or 0)
        deadline = time.monotonic() + START_SECONDS
        while self.is_running:
            answer = ping(HOST, self.direct, timeout=1)
            if answer is not None and self.direct in answer.ports:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        raise AssertionError(f"broker {self.number} did not start: {self.last_words()}")

    def signal(self, number: int) -> None:
        """Send a signal to the JVM, if it runs."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self.stopped = number == signal.SIGSTOP

    def wait(self) -> None:
        """Wait for its end, and release its guard."""
        guard, self.guard, self.stopped = self.guard, None, False
        if guard is not None:
            guard.wait()
            for pipe in (guard.stdin, guard.stdout):
                if pipe is not None:
                    pipe.close()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


REPLICAS: Final = 3
IN_SYNC: Final = 2
QUICK: Final = {
    "inter.broker.listener.name": REPLICATION,
    # A replica that is silent leaves the ISR within seconds, not half a minute.
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "100",
    "replica.socket.timeout.ms": "5000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controlled.shutdown.max.retries": "1",
    "leader.imbalance.check.interval.seconds": "10",
    "num.network.threads": "1",
}


def _replication_settings(replicas: int, in_sync: int) -> dict[str, str]:
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


class KafkaCluster:
    """Brokers, with a proxy before every listener but DIRECT."""

    def __init__(self, count: int, clients: Sequence[str]) -> None:
        """`clients` get a listener each, so that the network can be cut for one of them alone."""
        self.directory = Path(tempfile.mkdtemp(prefix="neardup-chaos-kafka-"))
        self.network = Network()
        listeners = [REPLICATION, *clients]
        ports = iter(free_ports(count * (2 + 2 * len(listeners))))
        controllers = {number: next(ports) for number in range(1, count + 1)}
        self.brokers = []
        for number, controller in controllers.items():
            direct = next(ports)
            own, advertised = {DIRECT: direct}, {DIRECT: direct}
            for listener in listeners:
                own[listener], advertised[listener] = next(ports), next(ports)
                self.network.links.append(Link(listener, number, advertised[listener], own[listener]))
            directory = self.directory / str(number)
            properties = {
                "node.id": str(number),
                "listeners": _listener_list({**own, "CONTROLLER": controller}),
                "advertised.listeners": _listener_list(advertised),
                "listener.security.protocol.map": ",".join(
                    f"{name}:PLAINTEXT" for name in (*own, "CONTROLLER")
                ),
                "controller.quorum.voters": ",".join(f"{n}@{HOST}:{p}" for n, p in controllers.items()),
                "log.dirs": str(directory / "data"),
                **_replication_settings(min(REPLICAS, count), min(IN_SYNC, count)),
                **QUICK,
            }
            self.brokers.append(Broker(number, directory, direct, properties))

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers of the listener that is never cut."""
        return ",".join(f"{HOST}:{broker.direct}" for broker in self.brokers)

    def broker(self, number: int) -> Broker:
        """By its number, from 1."""
        return self.brokers[number - 1]

    async def __aenter__(self) -> KafkaCluster:
        cluster_id = (
            "N" + base64.urlsafe_b64encode(random.SystemRandom().randbytes(16)).decode().rstrip("=")[1:]
        )
        try:
            for broker in self.brokers:
                await asyncio.to_thread(broker.format, cluster_id)
            await self.network.__aenter__()
            # Each waits for a quorum: all at once.
            await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in self.brokers))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for broker in self.brokers:
            await asyncio.to_thread(broker.kill)
        await self.network.__aexit__()
        shutil.rmtree(self.directory, ignore_errors=True)


def _listener_list(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
