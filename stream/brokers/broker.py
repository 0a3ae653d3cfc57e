"""Finds or starts a real Kafka broker for `neardup demo` and the tests, or starts one for `neardup broker`.

The first of these that is available: the Kafka cluster named by NEARDUP_BOOTSTRAP_SERVERS; an embedded Apache
Kafka, which needs Java 17 and Maven; a container, which needs a Docker engine. NEARDUP_BROKER=embedded and
NEARDUP_BROKER=docker select one of the last two.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stream.brokers import docker, embedded
from stream.brokers.local_broker import LocalBroker
from stream.errors import BrokerError


class ExternalBroker(LocalBroker):
    """An existing Kafka cluster, which is used but never stopped."""

    ours = False

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.description = f"Kafka at {bootstrap_servers} (NEARDUP_BOOTSTRAP_SERVERS)"

    def alive(self) -> bool:
        """Return True: it is not ours to check."""
        return True

    def stop(self) -> None:
        """Does nothing."""

    def kill(self) -> None:
        """Not supported. Raises BrokerError."""
        raise BrokerError(f"{self.description} is not ours to kill")

    def restart(self) -> None:
        """Not supported. Raises BrokerError."""
        raise BrokerError(f"{self.description} is not ours to restart")


def start_broker(
    data_dir: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> LocalBroker:
    """A broker that answers metadata requests. Passes a line that describes it to `progress`.

    `data_dir` keeps the embedded broker's data, which are temporary otherwise. Raises BrokerError, which says
    what was tried and what to install.
    """
    servers = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS")
    broker = ExternalBroker(servers) if servers else start_own_broker(data_dir, progress)
    progress(f"broker: {broker.description}")
    return broker


def start_own_broker(
    data_dir: Path | None, progress: Callable[[str], None], port: int | None = None
) -> LocalBroker:
    """A broker that this process has started, even if NEARDUP_BOOTSTRAP_SERVERS names one.

    It listens on `port`, or on a free one. Raises BrokerError, as `start_broker` does, and if the port is
    taken or the data cannot be kept.
    """
    kind = os.environ.get("NEARDUP_BROKER", "")
    if kind not in ("", "embedded", "docker"):
        raise BrokerError(f"NEARDUP_BROKER: {kind!r} is neither `embedded` nor `docker`")
    tried = []
    if kind != "docker":
        missing = embedded.missing()
        if missing is None:
            return embedded.EmbeddedBroker(data_dir, progress, port=port)
        tried.append(f"embedded Apache Kafka: {missing}")
    if kind != "embedded":
        missing = docker.missing()
        if missing is None:
            if data_dir is not None:
                raise BrokerError(
                    f"{data_dir}: a broker in Docker keeps no data; that needs Java 17 or newer and Maven"
                    + "".join(f" ({each})" for each in tried)
                )
            return docker.DockerBroker(progress, port)
        tried.append(f"Docker: {missing}")
    raise BrokerError(
        "no Kafka broker: "
        + "; ".join(tried)
        + ". Install Java 17 or newer and Maven, or a Docker engine, "
        + "or name a Kafka cluster in NEARDUP_BOOTSTRAP_SERVERS"
    )
