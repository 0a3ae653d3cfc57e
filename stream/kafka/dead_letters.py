"""What becomes of rejected pages: their bytes are kept for a person, and too many of them stop the worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Self

from aiokafka import AIOKafkaProducer

from stream.errors import RejectLimitError
from stream.fingerprint.row import Row, Status
from stream.kafka import cluster
from stream.kafka.backlog import Rejected, Source

FRAMING_BYTES: Final = 512
"""Bytes of a record batch besides key, value and header values, rounded up."""
LARGEST: Final = 64 << 20
"""Larger messages are truncated whatever the topic takes."""
FLIGHT_BYTES: Final = 1 << 20
"""Letters on their way at once: a request must stay far below a broker's `socket.request.max.bytes`."""
REJECT_WINDOW: Final = 1000
"""Pages that `reject_limit` looks back on."""


class RejectLimit:
    """Stops a worker that would reject the stream (rule 5)."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._window: deque[bool] = deque(maxlen=REJECT_WINDOW)

    def count(self, rows: Iterable[Row]) -> None:
        """Note rows that are about to be appended. Raises RejectLimitError."""
        reason = None
        for row in rows:
            self._window.append(row.status == Status.REJECTED)
            reason = row.reason or reason
        share = sum(self._window) / REJECT_WINDOW
        if len(self._window) == REJECT_WINDOW and share > self._limit:
            raise RejectLimitError(
                f"reject_limit: {share:.1%} of the last {REJECT_WINDOW} pages were rejected, more than "
                f"{self._limit:.1%}; last reason: {reason}"
            )


class DeadLetters:
    """Writes rejected pages to their topic. At least once: headers make copies recognisable."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, largest: int) -> None:
        self._producer = producer
        self._topic = topic
        self._largest = largest

    @classmethod
    async def to(cls, producer: AIOKafkaProducer, topic: str) -> Self:
        """Letters to that topic, no larger than it takes. Raises TopicError when it is missing."""
        configs = await cluster.topic_configs(producer.client, [topic])
        return cls(producer, topic, min(int(configs[topic]["max.message.bytes"]), LARGEST))

    async def bury(self, source: Source, rejected: Sequence[Rejected]) -> None:
        """Return when all are acknowledged. Raises KafkaError."""
        sent: list[asyncio.Future[object]] = []
        flying = 0
        for letter in rejected:
            headers = _headers(source, letter)
            key, value = letter.key, letter.value or b""
            size = FRAMING_BYTES + sum(len(content) for _, content in headers)
            if size + len(key or b"") + len(value) > self._largest:
                key, value = None, b""
                headers.append(("truncated", b"1"))
            sent.append(await self._producer.send(self._topic, value, key, headers=headers))
            flying += size + len(value)
            if flying > FLIGHT_BYTES:
                await asyncio.gather(*sent)
                sent, flying = [], 0
        await asyncio.gather(*sent)


def _headers(source: Source, letter: Rejected) -> list[tuple[str, bytes]]:
    texts = {
        "reason": letter.row.reason or "",
        "detail": letter.row.detail or "",
        "cluster": source.cluster,
        "topic": source.topic,
        "topic_id": source.topic_id,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
    }
    return [(name, text.encode(errors="replace")) for name, text in texts.items()]
