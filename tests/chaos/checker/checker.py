"""Reads journal, decisions, requests and verdicts while they are written, as any consumer would: librdkafka,
`read_committed`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.checker.account import Account
from tests.chaos.load import SentPages

SHORTEST: Final = 1.0
"""Seconds that count as a stall."""


class Checker:
    """Keeps the account of one namespace, from the first record on, in a thread of its own."""

    def __init__(
        self, servers: str, namespace: str, partitions: int, options: Mapping[str, Any], sent: SentPages
    ) -> None:
        self.longest_stall = 0.0
        """Longest time in seconds without a verdict while pages waited for one."""
        self.stalled_at = 0.0
        """When the longest stall ended, in seconds since the start."""
        self._started = self._moved = time.monotonic()
        self._journal, self._decisions, self._requests = (
            f"{namespace}.{name}" for name in ("journal", "decisions", "requests")
        )
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": f"chaos-{namespace}", "enable.auto.commit": False,
                "isolation.level": "read_committed", "auto.offset.reset": "error", "fetch.wait.max.ms": 100,
                "enable.partition.eof": True, "reconnect.backoff.max.ms": 1000, "log_level": 0,
                "topic.metadata.refresh.interval.ms": 10_000,  # the default is a stall: leaders move here
            }
        )  # fmt: skip
        self.account = Account(options, sent, self._journal_of(namespace))
        read = [(f"{namespace}.verdicts", partition) for partition in range(partitions)]
        read += [(topic, 0) for topic in (self._journal, self._decisions, self._requests)]
        self._consumer.assign([TopicPartition(*each, 0) for each in read])
        self._thread = threading.Thread(target=self._run, name="checker", daemon=True)

    def _journal_of(self, namespace: str) -> str:
        """Return the journal's UUID, from its genesis."""
        message = None
        while message is None or message.error() is not None:
            # Anew each time: after some errors, as of a leader that has just begun, nothing is read any more.
            self._consumer.assign([TopicPartition(f"{namespace}.genesis", 0, 0)])
            message = self._consumer.poll(5)
        value = message.value()
        assert value is not None
        return str(msgspec.msgpack.decode(value)["journal"])

    def __enter__(self) -> Checker:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    @property
    def count(self) -> int:
        """Verdicts so far. Raises what ended the checker."""
        if self._failed is not None:
            raise self._failed
        return self.account.verdicts.total()

    @property
    def outstanding(self) -> int:
        """Pages that should have a verdict and have none yet."""
        return sum(1 for _ in self.account.unjudged())

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(500, 0.2):
                    self._take(message)
                self._note_stall()
        except BaseException as error:
            self._failed = error

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                end = message.offset()
                if message.topic() == self._requests and end is not None:
                    self.account.end_requests(end)
                return
            if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT) or error.retriable():
                return
            raise KafkaException(error)
        value, offset = message.value(), message.offset()
        assert value is not None
        assert offset is not None
        if message.topic() == self._journal:
            _, appended = message.timestamp()
            self.account.take_journal(value, offset, appended)
        elif message.topic() == self._decisions:
            self.account.take_decision(value)
        elif message.topic() == self._requests:
            self.account.take_request(value, offset)
        else:
            self._moved = time.monotonic()
            self.account.take_verdict(value)

    def _note_stall(self) -> None:
        now = time.monotonic()
        stalled = now - self._moved
        if stalled > max(SHORTEST, self.longest_stall):
            if next(self.account.unjudged(), None) is None:
                self._moved = now
            else:
                self.longest_stall, self.stalled_at = stalled, now - self._started
