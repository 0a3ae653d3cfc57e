"""The crawler: pages of our own making, sent by librdkafka, and read back from their topic, which alone tells
which places they have.

An acknowledgement does not: brokers that had a page already acknowledge it without an offset, and they store
a page twice if the producer had to begin a new epoch before the acknowledgement came.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SYLLABLES: Final = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
WORDS: Final = [a + b for a in SYLLABLES for b in SYLLABLES]
UNSENT: Final = 2000
"""Pages that may wait for their acknowledgement, or for their verdict, before no more are sent."""
HANG_SECONDS: Final = 600
"""Time-out of acknowledgements by brokers that are all up, and of reading pages back. Not from
`tests.waiting`, which imports the program."""
SERIAL: Final = "serial"
"""Header with the page's serial number."""
REMEMBERED: Final = 400
"""Number of latest texts that may be copied."""
MIRRORED: Final = 5
"""Number of texts whose mirrors are fetched again and again."""

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class SentPage:
    """A page as it was sent."""

    url: str
    digest: str
    """Digest of the text."""
    malformed: bool = False


class PageMaker:
    """New, edited, mirrored, re-crawled, empty and malformed pages, and mirrors whose originals change.
    Seeded."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._texts: list[tuple[str, list[str]]] = []
        self._mirrored: list[tuple[list[str], list[str]]] = []
        """URLs that have a text, oldest first, and the text."""

    def next(self) -> tuple[SentPage, bytes]:
        """Return a new page, and its message."""
        rng, kind = self._random, self._random.random()
        if kind < 0.02:
            return SentPage(
                "http://broken.example/", "", malformed=True
            ), b'{"url": "http://broken.example/", "text": '
        url = f"http://site-{rng.randrange(40)}.example/{rng.randrange(100_000)}"
        if kind < 0.04:
            words = ["too", "short"]
        elif kind < 0.12:
            url, words = self._mirror(url)
        elif kind < 0.55 or not self._texts:
            words = self._text()
        else:
            known, words = rng.choice(self._texts)
            url = known if kind < 0.75 else url
            words = list(words)
            for _ in range(rng.choice([0, 0, 1, 1, 2, 4, 30])):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
        if len(words) > 2:
            self._texts = [*self._texts[1 - REMEMBERED :], (url, words)]
        text = " ".join(words)
        page = SentPage(url, hashlib.sha256(text.encode()).hexdigest())
        return page, json.dumps({"url": url, "text": text}).encode()

    def _text(self) -> list[str]:
        return self._random.choices(WORDS, k=self._random.randrange(60, 200))

    def _mirror(self, url: str) -> tuple[str, list[str]]:
        """Return a page of a text that a few URLs have: at a new URL, at one of them again, or another text
        at the one that had it first, so that the cluster of the others ends."""
        rng = self._random
        if len(self._mirrored) < MIRRORED or rng.random() < 0.05:
            self._mirrored = [*self._mirrored[1 - MIRRORED :], ([], self._text())]
        urls, words = rng.choice(self._mirrored)
        if len(urls) < 2 or (len(urls) < 4 and rng.random() < 0.3):
            urls.append(url)
            return url, words
        if rng.random() < 0.3:
            return urls.pop(0), self._text()
        return rng.choice(urls), words


class SentPages:
    """The pages that are in their topics, by their places, and which of them were deleted on purpose."""

    def __init__(self) -> None:
        self._given: dict[Place, SentPage] = {}
        self._gone: set[str] = set()
        self._deleted: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def give(self, place: Place, page: SentPage) -> None:
        """Record the place of a page."""
        with self._lock:
            self._given[place] = page

    def delete_below(self, topic_id: str, partition: int, offset: int) -> None:
        """Record that the pages of a partition below an offset are being deleted."""
        key = topic_id, partition
        self._deleted[key] = max(offset, self._deleted.get(key, 0))

    def delete_topic(self, topic_id: str) -> None:
        """Record that a topic is being deleted."""
        self._gone.add(topic_id)

    def __len__(self) -> int:
        """Number of places."""
        return len(self._given)

    def stored_pages(self) -> Iterator[tuple[Place, SentPage]]:
        """Yield every page with its place. A page may have two."""
        with self._lock:
            given = list(self._given.items())
        yield from given

    def page(self, place: Place) -> SentPage | None:
        """Return the page at a place; None if it was not read back yet."""
        return self._given.get(place)

    def is_gone(self, place: Place) -> bool:
        """Whether the page's topic was deleted."""
        return place[0] in self._gone

    def is_deleted(self, place: Place) -> bool:
        """Whether the page's record was deleted."""
        return place[2] < self._deleted.get(place[:2], 0)

    def ends(self, topic_id: str) -> dict[int, int]:
        """Return the offset after the last page of each partition of a topic."""
        ends: dict[int, int] = {}
        for (topic, partition, offset), _ in self.stored_pages():
            if topic == topic_id:
                ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends


class PagesUnderWay:
    """Pages by serial number, until they are acknowledged, and read back from the topic."""

    def __init__(self, given: SentPages) -> None:
        self._given = given
        self._pages: list[SentPage] = []
        self._unacknowledged, self._unread = set[int](), set[int]()

    def send(self, page: SentPage) -> int:
        """Record that a page is sent. Returns its serial number."""
        serial = len(self._pages)
        self._pages.append(page)
        self._unacknowledged.add(serial)
        self._unread.add(serial)
        return serial

    def acknowledge(self, serial: int, error: object) -> None:
        """Record the acknowledgement of a page. Raises AssertionError if it was not sent."""
        assert error is None, f"page {serial} was not sent: {error}"
        self._unacknowledged.remove(serial)

    def read_back(self, place: Place, serial: int) -> None:
        """Record the place of a page. A page that was stored before has another one."""
        self._given.give(place, self._pages[serial])
        self._unread.discard(serial)

    @property
    def unacknowledged(self) -> int:
        """Number of pages without an acknowledgement."""
        return len(self._unacknowledged)

    @property
    def unread(self) -> int:
        """Number of pages that were not read back."""
        return len(self._unread)


class Load:
    """Sends pages at a steady rate, and reads them back, in a thread of its own, until told to pause or
    stop."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: float, seed: str) -> None:
        self._servers, self._topic, self._rate = servers, topic, rate
        self.given = SentPages()
        self.under_way = PagesUnderWay(self.given)
        self._crawl = PageMaker(seed)
        self.backlog = 0
        """Number of pages without a verdict, as last reported by the run. Beyond UNSENT, no pages are
        sent."""
        self.topic_id = ""
        """Id of the current pages topic."""
        self._next = dict.fromkeys(range(partitions), 0)
        """Partition -> the offset that is read next."""
        self._paused, self._stop = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self, topic_id: str) -> None:
        """Begin to send to the topic of this id."""
        self.topic_id = topic_id
        self._thread.start()

    def pause(self) -> None:
        """Pause sending, and wait until all pages sent are acknowledged and read back."""
        self._idle.clear()
        self._paused.set()
        ends = time.monotonic() + HANG_SECONDS
        while not self._idle.wait(0.1):
            self.check()
            assert time.monotonic() < ends, (
                f"{self.under_way.unacknowledged} pages are not acknowledged, and {self.under_way.unread} are"
                " not in the topic"
            )

    def resume(self, topic_id: str) -> None:
        """Go on sending, to a new topic, as the old one was deleted."""
        self.given.delete_topic(self.topic_id)
        self.topic_id, self._next = topic_id, dict.fromkeys(self._next, 0)
        self._paused.clear()

    def stop(self) -> None:
        """Stop sending, and wait until all pages sent are acknowledged and read back."""
        self.pause()
        self._stop.set()
        self._thread.join()

    def abandon(self) -> None:
        """End the thread without waiting for acknowledgements."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise AssertionError if pages could not be sent, or not be read back."""
        if self._failed is not None:
            raise AssertionError(f"the load failed: {self._failed}") from self._failed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                # New ones for a new topic: sequence numbers and offsets begin anew with it.
                self._converse(self._producer(), self._consumer())
                while self._paused.is_set() and not self._stop.is_set():
                    self._idle.set()
                    time.sleep(0.02)
        except BaseException as error:  # of callbacks, too; told by check()
            self._failed = error

    def _converse(self, producer: Producer, consumer: Consumer) -> None:
        """Send and read back until told to pause, and then until nothing is under way."""
        try:
            while not self._stop.is_set():
                self._read_back(consumer, 1 / self._rate)
                if not self._paused.is_set():
                    producer.poll(0)
                    if self.under_way.unacknowledged < UNSENT and self.backlog < UNSENT:
                        self._send(producer)
                elif self.under_way.unread or self.under_way.unacknowledged:
                    producer.flush(0.2)
                else:
                    return
        finally:
            consumer.close()

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers, "enable.idempotence": True, "acks": "all",
                "message.timeout.ms": 0, "linger.ms": 5, "compression.type": "lz4",
                "reconnect.backoff.max.ms": 1000, "log_level": 0,
            }
        )  # fmt: skip

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers, "group.id": "load", "enable.auto.commit": False,
                "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 1000, "log_level": 0,
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(self._topic, *each) for each in self._next.items()])
        return consumer

    def _read_back(self, consumer: Consumer, seconds: float) -> None:
        """Take what is read within so many seconds.

        Errors are of brokers that are away, or do not know a new topic yet. If a page never comes, `pause`
        tells it.
        """
        for message in consumer.consume(500, seconds):
            if message.error() is None:
                partition, offset, headers = message.partition(), message.offset(), message.headers()
                assert partition is not None
                assert offset is not None
                serial = dict(headers or ())[SERIAL]
                assert isinstance(serial, bytes)
                self.under_way.read_back((self.topic_id, partition, offset), int(serial))
                self._next[partition] = offset + 1

    def _send(self, producer: Producer) -> None:
        page, message = self._crawl.next()
        serial = self.under_way.send(page)

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            self.under_way.acknowledge(serial, error)

        producer.produce(self._topic, message, headers={SERIAL: str(serial)}, on_delivery=on_delivery)
