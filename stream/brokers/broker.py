"""Finds or starts a real Kafka broker for `neardup demo` and the tests.

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
    broker = _choose(data_dir, progress)
    progress(f"broker: {broker.description}")
    return broker


def _choose(data_dir: Path | None, progress: Callable[[str], None]) -> LocalBroker:
    servers = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS")
    if servers:
        return ExternalBroker(servers)
    kind = os.environ.get("NEARDUP_BROKER", "")
    if kind not in ("", "embedded", "docker"):
        raise BrokerError(f"NEARDUP_BROKER: {kind!r} is neither `embedded` nor `docker`")
    tried = []
    if kind != "docker":
        missing = embedded.missing()
        if missing is None:
            return embedded.EmbeddedBroker(data_dir, progress)
        tried.append(f"embedded Apache Kafka: {missing}")
    if kind != "embedded":
        missing = docker.missing()
        if missing is None:
            return docker.DockerBroker(progress)
        tried.append(f"Docker: {missing}")
    raise BrokerError(
        "no Kafka broker: "
        + "; ".join(tried)
        + ". Install Java 17 or newer and Maven, or a Docker engine, "
        + "or name a Kafka cluster in NEARDUP_BOOTSTRAP_SERVERS"
    )
