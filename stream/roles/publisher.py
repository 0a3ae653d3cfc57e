"""Publishes pages from sources to the pages topic, with an error that names any unacknowledged message."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, Literal
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)

from stream.errors import BrokerError, PageError, TopicError
from stream.fingerprint.row import KEY_BYTES
from stream.futures import retrieved
from stream.kafka import clients
from stream.kafka.names import TopicNames
from stream.pages.page import decode_page
from stream.settings import Settings
from stream.sources.feed import feed
from stream.sources.rejections import Rejections
from stream.sources.source import MAX_MESSAGE, Message, Source, refuse_unreadable
from stream.text.url import COARSEST, url_key

Key = Literal["url", "host", "none"]
Progress = Callable[[int, int], None]
"""Called with the number of acknowledged messages and of bytes read from the sources so far."""

PRODUCER_BATCH_BYTES: Final = 256 << 10
"""Maximum size of a batch of several messages. It is far below any `max.message.bytes`, so that only a
message that is too large by itself is refused."""
UNACKNOWLEDGED_BYTES: Final = 32 << 20
"""Bytes in flight above which reading pauses, below the broker's limit of 100 MiB per request."""
OUTSIDE: Final = frozenset({"bad_claim", "unknown_schema"})
"""Reasons of which only a worker can tell, which has the schema registry and the archives."""
LINGER_MS: Final = 5
TOPIC_SECONDS: Final = 2.0


@clients.with_translated_errors
async def publish(
    settings: Settings,
    sources: Iterable[Source],
    *,
    progress: Progress | None = None,
    rate: float | None = None,
    key: Key = "url",
    rejections: Rejections | None = None,
) -> int:
    """Publish all messages of the sources in order, at least once. Returns the number of acknowledged
    messages.

    `rate` limits messages per second. `key` decides the partition: messages of the same URL or host stay on
    one partition and in order, while `none` spreads messages randomly unless the source has keys.
    `rejections` counts messages that workers will reject. After an error, some messages after the named one
    may be on the topic.

    Raises PageError if a source is damaged or a message exceeds the topic's `max.message.bytes`, BrokerError
    if a message was not acknowledged, and TopicError if the topic is missing.
    """
    opened = list(sources)
    topic = TopicNames(settings.namespace).pages
    producer = page_producer(settings)
    try:
        try:
            await clients.start(settings, producer)
        except ClusterAuthorizationFailedError as error:  # raised if the producer may not write any topic
            raise TopicAuthorizationFailedError(topic, "(Write)") from error
        await _wait_for_topic(producer, topic)
        window = _Window(producer, topic, progress, opened)
        messages = chain.from_iterable(opened)
        coming = messages if rejections is None else checked(messages, settings.page_bytes, rejections)
        started = asyncio.get_running_loop().time()
        async with contextlib.aclosing(feed(coming)) as chunks:
            sent = 0
            async for chunk in chunks:
                for message in chunk:
                    if rate is not None:
                        await _sleep_until(started + sent / rate)
                    await window.send(message, key_of(message, key))
                    sent += 1
        await window.drain(0)
        refuse_unreadable(opened)
        return window.acknowledged
    finally:
        await clients.end(producer)


def page_producer(settings: Settings) -> AIOKafkaProducer:
    """Create a producer for the pages topic, not started."""
    return clients.producer(
        settings,
        enable_idempotence=True,
        acks="all",
        # aiokafka's lz4 is LZ4-HC at level 9: 131 MB/s and 9.6:1 on HTML; its zstd does 667 and 14.8:1.
        compression_type="zstd",
        linger_ms=LINGER_MS,
        max_batch_size=PRODUCER_BATCH_BYTES,
        # Leave the limit to the broker, which applies it to the compressed size; aiokafka uses the original
        # one.
        max_request_size=2 * MAX_MESSAGE,
    )


def checked(messages: Iterable[Message], page_bytes: int, rejections: Rejections) -> Iterator[Message]:
    """Yield the messages, and count those that are no pages."""
    for message in messages:
        try:
            url_key(decode_page(message.value, page_bytes).url, COARSEST)
        except PageError as error:
            if error.reason not in OUTSIDE:
                detail = message.columns.translate(error.detail)
                rejections.count(error.reason, message.origin, detail)
        yield message


def key_of(message: Message, key: Key) -> bytes | None:
    """Return the key of a message: derived from its URL, else its own key or None.

    The key of a long URL is its beginning, because workers reject a page whose key is too large.
    """
    if key == "none" or message.url_hint is None:
        return message.key
    try:
        derived = _url_key(message.url_hint) if key == "url" else urlsplit(message.url_hint).hostname
    except ValueError:
        derived = None
    return message.key if derived is None else derived.encode("utf-8", "replace")[:KEY_BYTES]


def _url_key(url: str) -> str:
    try:
        return url_key(url, COARSEST)
    except PageError:
        return url


async def _wait_for_topic(producer: AIOKafkaProducer, topic: str) -> None:
    """Wait for the topic, because a broker may not know a new topic yet. Raises TopicError."""
    deadline = asyncio.get_running_loop().time() + TOPIC_SECONDS
    while topic not in (await producer.client.fetch_all_metadata()).topics():
        if asyncio.get_running_loop().time() > deadline:
            raise TopicError(f"topic {topic} is missing: run `neardup topics create`")
        await asyncio.sleep(0.1)


async def _sleep_until(moment: float) -> None:
    delay = moment - asyncio.get_running_loop().time()
    if delay > 0:
        await asyncio.sleep(delay)


class _Window:
    """A window of messages in flight, bounded in bytes. Acknowledgements are awaited in the order of
    sending."""

    def __init__(
        self, producer: AIOKafkaProducer, topic: str, progress: Progress | None, sources: list[Source]
    ) -> None:
        self.acknowledged = 0
        self._producer = producer
        self._topic = topic
        self._progress = progress
        self._sources = sources
        self._sends: deque[tuple[Message, asyncio.Future[object]]] = deque()
        self._bytes = 0

    async def send(self, message: Message, key: bytes | None) -> None:
        """Send a message, waiting while the producer's batches or the window are full."""
        try:
            future = retrieved(await self._producer.send(self._topic, message.value, key=key))
        except KafkaError as error:
            raise self._failure(message, error) from error
        self._sends.append((message, future))
        self._bytes += len(message.value)
        await self.drain(UNACKNOWLEDGED_BYTES)

    async def drain(self, unacknowledged: int) -> None:
        """Wait until at most `unacknowledged` bytes are in flight, and count acknowledged messages."""
        before = self.acknowledged
        while self._sends and (self._bytes > unacknowledged or self._sends[0][1].done()):
            message, future = self._sends[0]
            try:
                async with clients.acknowledgement_limit(f"{message.origin}, topic {self._topic}"):
                    await future
            except KafkaError as error:
                raise self._failure(message, error) from error
            self._sends.popleft()
            self._bytes -= len(message.value)
            self.acknowledged += 1
        if self._progress is not None and (self.acknowledged > before or not self._sends):
            self._progress(self.acknowledged, sum(source.bytes_read for source in self._sources))

    def _failure(self, message: Message, error: KafkaError) -> PageError | BrokerError:
        if isinstance(error, MessageSizeTooLargeError):
            return PageError(
                "too_large",
                f"{message.origin}: {len(message.value)} bytes are more than topic {self._topic} takes"
                f" (max.message.bytes); {self.acknowledged} messages before it were published",
            )
        return BrokerError(
            f"{message.origin}: not acknowledged by topic {self._topic} ({error!r});"
            f" {self.acknowledged} messages before it were published"
        )
