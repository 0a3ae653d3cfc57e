"""Apache Kafka in a Docker container, for machines without Java."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from stream.brokers.local_broker import LocalBroker
from stream.brokers.ping import ping
from stream.brokers.ports import claim
from stream.errors import BrokerError

IMAGE: Final = "confluentinc/cp-kafka:7.9.2"
"""Kafka 3.9. The start script of testcontainers is written for this series of images."""
CONTAINER_PORT: Final = 9093
START_SECONDS: Final = 120
ENVIRONMENT: Final = {
    # The settings of deploy/kafka/server.properties that our topics and transactions need.
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_MESSAGE_MAX_BYTES": "41943040",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
    "KAFKA_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "1000",
}


def missing() -> str | None:
    """What this machine lacks for a broker in Docker, or None."""
    try:
        import docker  # type: ignore[import-untyped]
        import testcontainers.community.kafka  # noqa: F401 (checks that it is installed)
    except ImportError:
        return "the Python package `testcontainers` is not installed (extra `docker`)"
    try:
        engine = docker.from_env(timeout=10)
    except docker.errors.DockerException as error:
        return f"no engine answers ({type(error).__name__})"
    try:
        engine.ping()
    except (docker.errors.DockerException, OSError) as error:
        return f"no engine answers ({type(error).__name__})"
    finally:
        engine.close()
    return None


class DockerBroker(LocalBroker):
    """A broker in a container, which testcontainers' reaper removes if this process is killed."""

    def __init__(self, progress: Callable[[str], None], port: int | None = None) -> None:
        """Start a container and wait until its broker answers. Raises BrokerError."""
        from testcontainers.community.kafka import KafkaContainer

        # Docker would choose another port after a restart.
        self._port = claim(port)
        progress(f"starting {IMAGE} (Docker fetches it the first time)")
        self._container = KafkaContainer(IMAGE, port=CONTAINER_PORT).with_kraft()
        self._container.with_bind_ports(CONTAINER_PORT, self._port)
        for name, value in ENVIRONMENT.items():
            self._container.with_env(name, value)
        try:
            self._container.start(timeout=START_SECONDS)
            self._host = str(self._container.get_container_host_ip())
            self._wait()
        except Exception as error:
            self.stop()
            raise BrokerError(f"Docker could not start {IMAGE}: {error}") from error
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers = f"{self._host}:{self._port}"
        self.description = f"Apache Kafka in Docker ({IMAGE}) on {self.bootstrap_servers}"

    def alive(self) -> bool:
        """Return whether the engine says that the container runs."""
        try:
            container = self._container.get_wrapped_container()
            container.reload()
        except Exception:  # of the engine's client: it is gone, or the engine is
            return False
        return bool(container.status == "running")

    def stop(self) -> None:
        """Remove the container and its data."""
        with contextlib.suppress(Exception):  # it may never have started
            self._container.stop()

    def kill(self) -> None:
        """Send SIGKILL to the container."""
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        """Restart the container with the same port and data. Raises BrokerError."""
        self._container.get_wrapped_container().restart()
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while (answer := ping(self._host, self._port, timeout=1)) is None or not answer.ports:
            if time.monotonic() > deadline:
                raise BrokerError(f"Kafka in Docker did not answer within {START_SECONDS} s")
            time.sleep(0.1)
