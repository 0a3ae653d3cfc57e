"""What the harness asks of the brokers, each request in a process of its own.

librdkafka aborts the process now and then (`eonce->refcnt > 0`) when a broker dies that an administrative
request waits for. In a process of its own that is one more request without an answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import HANG_SECONDS

ASK_SECONDS: Final = 20.0
_START_SECONDS: Final = 60.0
"""Allowance for the start of a process on a busy machine."""


class NoAnswerError(Exception):
    """The brokers refused a request, did not answer in time, or took librdkafka with them."""


class BrokerAdmin:
    """Administrative requests to one Kafka cluster. Each method raises NoAnswerError."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def coordinator(self, group: str) -> int:
        """Number of the broker that coordinates the group."""
        return int(self._ask("coordinator", group))

    def leader(self, topic: str) -> int:
        """Number of the broker that leads partition 0; -1 while there is none."""
        return int(self._ask("leader", topic))

    def partitions(self, topic: str) -> int:
        """Number of the topic's partitions."""
        return int(self._ask("partitions", topic))

    def topic_id(self, topic: str) -> str | None:
        """32 hex digits, as in verdicts and journal; None where there is no such topic."""
        found: str | None = self._ask("topic_id", topic)
        return found

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        """Create a topic."""
        self._ask("create_topic", topic, partitions, replication)

    def delete_topics(self, prefix: str) -> None:
        """Delete all topics whose names begin with `prefix`."""
        self._ask("delete_topics", prefix)

    def delete_records(self, topic: str, partition: int, below: int) -> None:
        """Delete the records of a partition below an offset."""
        self._ask("delete_records", topic, partition, below)

    def _ask(self, request: str, *arguments: str | int) -> Any:
        command = [sys.executable, "-m", __name__, json.dumps([self._servers, request, *arguments])]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_START_SECONDS + ASK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"{request}: no answer") from error
        if done.returncode:
            raise NoAnswerError(f"{request}: exit code {done.returncode}: {done.stderr[-300:]}")
        return json.loads(done.stdout)


def insist(ask: Callable[[], Any]) -> Any:
    """Repeat a request until the brokers answer, as some are always down here."""
    ends = time.monotonic() + HANG_SECONDS
    while True:
        try:
            return ask()
        except NoAnswerError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.3)


def _coordinator(admin: AdminClient, group: str) -> int:
    described = admin.describe_consumer_groups([group], request_timeout=ASK_SECONDS)[group]
    return int(described.result(ASK_SECONDS).coordinator.id)


def _leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, ASK_SECONDS).topics[topic].partitions[0].leader)


def _partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, ASK_SECONDS).topics[topic].partitions)


def _topic_id(admin: AdminClient, topic: str) -> str | None:
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_SECONDS)[topic]
    try:
        uuid = described.result(ASK_SECONDS).topic_id
    except KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return None
        raise
    mask = (1 << 64) - 1
    return f"{uuid.get_most_significant_bits() & mask:016x}{uuid.get_least_significant_bits() & mask:016x}"


def _create_topic(admin: AdminClient, topic: str, partitions: int, replication: int) -> None:
    new = NewTopic(topic, partitions, replication)
    admin.create_topics([new], request_timeout=ASK_SECONDS)[topic].result(ASK_SECONDS)


def _delete_topics(admin: AdminClient, prefix: str) -> None:
    topics = [topic for topic in admin.list_topics(timeout=ASK_SECONDS).topics if topic.startswith(prefix)]
    for deleted in admin.delete_topics(topics, request_timeout=ASK_SECONDS).values() if topics else ():
        deleted.result(ASK_SECONDS)


def _delete_records(admin: AdminClient, topic: str, partition: int, below: int) -> None:
    where = TopicPartition(topic, partition, below)
    for answer in admin.delete_records([where], request_timeout=ASK_SECONDS).values():
        answer.result(ASK_SECONDS)


_REQUESTS: Final[dict[str, Callable[..., Any]]] = {
    "coordinator": _coordinator, "leader": _leader, "partitions": _partitions, "topic_id": _topic_id,
    "create_topic": _create_topic, "delete_topics": _delete_topics, "delete_records": _delete_records,
}  # fmt: skip


def main() -> None:
    """Answer the one request of the command line, as JSON."""
    servers, request, *arguments = json.loads(sys.argv[1])
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    sys.stdout.write(json.dumps(_REQUESTS[request](admin, *arguments)))


if __name__ == "__main__":
    main()
