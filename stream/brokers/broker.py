"""A real Kafka broker for `neardup demo` and the tests, found or started without being asked how.

In this order: the cluster that NEARDUP_BOOTSTRAP_SERVERS names; an embedded Apache Kafka (Java 17 and Maven);
a Docker engine. NEARDUP_BROKER=embedded or NEARDUP_BROKER=docker skips the choice between the last two.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stream.brokers import docker, embedded
from stream.brokers.local_broker import LocalBroker
from stream.errors import BrokerError


class ExternalBroker(LocalBroker):
    """Somebody else's cluster: used, never stopped."""

    ours = False

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.description = f"Kafka at {bootstrap_servers} (NEARDUP_BOOTSTRAP_SERVERS)"

    def stop(self) -> None:
        """Leave it alone."""

    def kill(self) -> None:
        """Refused. Raises BrokerError."""
        raise BrokerError(f"{self.description} is not ours to kill")

    def restart(self) -> None:
        """Refused. Raises BrokerError."""
        raise BrokerError(f"{self.description} is not ours to restart")


def start_broker(
    data_dir: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> LocalBroker:
    """A broker that answers metadata requests, and one line about it to `progress`.

    `data_dir` keeps the embedded broker's data; without it they are temporary. Raises BrokerError that says
    what was tried and what to install.
    """
    broker = _choose(data_dir, progress)
    progress(f"broker: {broker.description}")
    return broker


def _choose(data_dir: Path | None, progress: Callable[[str], None]) -> LocalBroker:
    servers = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS")
    if servers:
        return ExternalBroker(servers)
    asked = os.environ.get("NEARDUP_BROKER", "")
    if asked not in ("", "embedded", "docker"):
        raise BrokerError(f"NEARDUP_BROKER: {asked!r} is neither `embedded` nor `docker`")
    tried = []
    if asked != "docker":
        missing = embedded.missing()
        if missing is None:
            return embedded.EmbeddedBroker(data_dir, progress)
        tried.append(f"embedded Apache Kafka: {missing}")
    if asked != "embedded":
        missing = docker.missing()
        if missing is None:
            return docker.DockerBroker(progress)
        tried.append(f"Docker: {missing}")
    raise BrokerError(
        "no Kafka broker: "
        + "; ".join(tried)
        + ". Install Java 17 or newer and Maven, or a Docker engine, "
        + "or name a cluster in NEARDUP_BOOTSTRAP_SERVERS"
    )
