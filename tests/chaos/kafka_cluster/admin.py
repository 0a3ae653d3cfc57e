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
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import HANG_SECONDS

T = TypeVar("T")
ASK_SECONDS: Final = 20.0
_START_SECONDS: Final = 60.0
"""Allowance for the start of a process on a busy machine."""


class NoAnswerError(Exception):
    """The brokers refused a request, did not answer in time, or took librdkafka with them."""


class BrokerAdmin:
    """Administrative requests to one Kafka cluster."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def ask(self, request: Callable[..., T], *arguments: str | int) -> T:
        """The answer to a request, one of the functions below. Raises NoAnswerError."""
        name = request.__name__
        command = [sys.executable, "-m", __name__, json.dumps([self._servers, name, *arguments])]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_START_SECONDS + ASK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"{name}: no answer") from error
        if done.returncode:
            raise NoAnswerError(f"{name}: exit code {done.returncode}: {done.stderr[-300:]}")
        answer: T = json.loads(done.stdout)
        return answer


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


def coordinator(admin: AdminClient, group: str) -> int:
    """Number of the broker that coordinates the group."""
    described = admin.describe_consumer_groups([group], request_timeout=ASK_SECONDS)[group]
    return int(described.result(ASK_SECONDS).coordinator.id)


def leader(admin: AdminClient, topic: str) -> int:
    """Number of the broker that leads partition 0; -1 while there is none."""
    return int(admin.list_topics(topic, ASK_SECONDS).topics[topic].partitions[0].leader)


def count_partitions(admin: AdminClient, topic: str) -> int:
    """Number of the topic's partitions."""
    return len(admin.list_topics(topic, ASK_SECONDS).topics[topic].partitions)


def topic_id(admin: AdminClient, topic: str) -> str | None:
    """32 hex digits, as in verdicts and journal; None where there is no such topic."""
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_SECONDS)[topic]
    try:
        uuid = described.result(ASK_SECONDS).topic_id
    except KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return None
        raise
    mask = (1 << 64) - 1
    return f"{uuid.get_most_significant_bits() & mask:016x}{uuid.get_least_significant_bits() & mask:016x}"


def create_topic(admin: AdminClient, topic: str, count: int, replication: int) -> None:
    """Create a topic."""
    new = NewTopic(topic, count, replication)
    admin.create_topics([new], request_timeout=ASK_SECONDS)[topic].result(ASK_SECONDS)


def delete_topics(admin: AdminClient, prefix: str) -> None:
    """Delete all topics whose names begin with `prefix`."""
    topics = [topic for topic in admin.list_topics(timeout=ASK_SECONDS).topics if topic.startswith(prefix)]
    for deleted in admin.delete_topics(topics, request_timeout=ASK_SECONDS).values() if topics else ():
        deleted.result(ASK_SECONDS)


def delete_records(admin: AdminClient, topic: str, partition: int, below: int) -> None:
    """Delete the records of a partition below an offset."""
    where = TopicPartition(topic, partition, below)
    for answer in admin.delete_records([where], request_timeout=ASK_SECONDS).values():
        answer.result(ASK_SECONDS)


_REQUESTS: Final[tuple[Callable[..., Any], ...]] = (
    coordinator, leader, count_partitions, topic_id, create_topic, delete_topics, delete_records,
)  # fmt: skip


def main() -> None:
    """Answer the one request of the command line, as JSON."""
    servers, request, *arguments = json.loads(sys.argv[1])
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    named = {each.__name__: each for each in _REQUESTS}
    sys.stdout.write(json.dumps(named[request](admin, *arguments)))


if __name__ == "__main__":
    main()
