"""Dead letters: keeps the original bytes of rejected pages for inspection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from aiokafka import AIOKafkaProducer

from stream.futures import retrieved
from stream.kafka import broker_metadata
from stream.roles.worker.backlog import PagesTopic, Rejected

FRAMING_BYTES: Final = 512
"""Upper bound for the bytes of a record batch besides key, value and header values."""
LARGEST: Final = 64 << 20
"""Larger messages are truncated, whatever the topic's limit."""
FLIGHT_BYTES: Final = 1 << 20
"""Dead-letter bytes in flight. A request must stay far below a broker's `socket.request.max.bytes`."""


class DeadLetters:
    """Writes rejected pages to the dead-letter topic, at least once. Headers identify repeated ones."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, largest: int) -> None:
        self._producer = producer
        self._topic = topic
        self._largest = largest

    @classmethod
    async def to(cls, producer: AIOKafkaProducer, topic: str) -> Self:
        """Create a writer that respects the topic's size limit. Raises TopicError if the topic is missing."""
        configs = await broker_metadata.topic_configs(producer.client, [topic])
        return cls(producer, topic, min(int(configs[topic]["max.message.bytes"]), LARGEST))

    async def send(self, source: PagesTopic, rejected: Sequence[Rejected]) -> None:
        """Send dead letters and wait for their acknowledgement. Raises KafkaError."""
        sent: list[asyncio.Future[object]] = []
        flying = 0
        for letter in rejected:
            headers = _headers(source, letter)
            key, value = letter.key, letter.value or b""
            size = FRAMING_BYTES + sum(len(content) for _, content in headers)
            if size + len(key or b"") + len(value) > self._largest:
                key, value = None, b""
                headers.append(("truncated", b"1"))
            sent.append(retrieved(await self._producer.send(self._topic, value, key, headers=headers)))
            flying += size + len(value)
            if flying > FLIGHT_BYTES:
                await asyncio.gather(*sent)
                sent, flying = [], 0
        await asyncio.gather(*sent)


def _headers(source: PagesTopic, letter: Rejected) -> list[tuple[str, bytes]]:
    texts = {
        "reason": letter.row.reason or "",
        "detail": letter.row.detail or "",
        "cluster": source.cluster_id,
        "topic": source.topic,
        "topic_id": source.topic_id,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
    }
    return [(name, text.encode(errors="replace")) for name, text in texts.items()]
