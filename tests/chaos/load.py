"""The crawler: pages of our own making, sent by librdkafka, each remembered with the place it was given."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

SYLLABLES: Final = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
WORDS: Final = [a + b for a in SYLLABLES for b in SYLLABLES]
UNSENT: Final = 2000
"""Pages that may wait for their acknowledgement, or for their verdict, before no more are sent."""
HANG_SECONDS: Final = 600
"""Time-out of acknowledgements by brokers that are all up."""
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
    """The pages that were sent, by the places that brokers gave them, and which of them were deleted on
    purpose."""

    def __init__(self) -> None:
        self._given: dict[Place, SentPage] = {}
        self._gone: set[str] = set()
        self._deleted: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def give(self, place: Place, page: SentPage) -> None:
        """Record the acknowledgement of a page."""
        with self._lock:
            self._given[place] = page

    def delete_below(self, topic_id: str, partition: int, offset: int) -> None:
        """Record that the pages of a partition below an offset are being deleted."""
        key = topic_id, partition
        self._deleted[key] = max(offset, self._deleted.get(key, 0))

    def delete_topic(self, topic_id: str) -> None:
        """Record that a topic is being deleted."""
        self._gone.add(topic_id)

    def acknowledged_pages(self) -> Iterator[tuple[Place, SentPage]]:
        """Yield every acknowledged page with its place."""
        with self._lock:
            given = list(self._given.items())
        yield from given

    def page(self, place: Place) -> SentPage | None:
        """Return the page at a place; None if it is not acknowledged yet."""
        return self._given.get(place)

    def is_gone(self, place: Place) -> bool:
        """Whether the page's topic was deleted."""
        return place[0] in self._gone

    def is_deleted(self, place: Place) -> bool:
        """Whether the page's record was deleted."""
        return place[2] < self._deleted.get(place[:2], 0)

    def ends(self, topic_id: str) -> dict[int, int]:
        """Return the offset after the last acknowledged page of each partition of a topic."""
        ends: dict[int, int] = {}
        for (topic, partition, offset), _ in self.acknowledged_pages():
            if topic == topic_id:
                ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends


class Load:
    """Sends pages at a steady rate, in a thread of its own, until told to pause or stop."""

    def __init__(self, servers: str, topic: str, rate: float, seed: str) -> None:
        self._servers, self._topic, self._rate = servers, topic, rate
        self.given = SentPages()
        self._crawl = PageMaker(seed)
        self.sent = 0
        self.backlog = 0
        """Number of pages without a verdict, as last reported by the run. Beyond UNSENT, no pages are
        sent."""
        self.topic_id = ""
        """Id of the current pages topic."""
        self._producer: Producer | None = None
        self._unacknowledged = 0
        self._next: dict[tuple[str, int], int] = {}
        """Topic id and partition -> the offset after the last acknowledged page."""
        self._paused, self._stop = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._failed: str | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self, topic_id: str) -> None:
        """Begin to send to the topic of this id."""
        self.topic_id = topic_id
        self._thread.start()

    def pause(self) -> None:
        """Pause sending, and wait until all pages sent are acknowledged."""
        self._idle.clear()
        self._paused.set()
        ends = time.monotonic() + HANG_SECONDS
        while not self._idle.wait(0.1):
            self.check()
            assert time.monotonic() < ends, f"{self._unacknowledged} pages are not acknowledged"

    def resume(self, topic_id: str | None = None) -> None:
        """Go on sending; with a topic id, to a new topic, as the old one was deleted."""
        if topic_id is not None:
            self.given.delete_topic(self.topic_id)
            self.topic_id = topic_id
        self._paused.clear()

    def stop(self) -> None:
        """Stop sending, and wait until all pages sent are acknowledged."""
        self.pause()
        self._stop.set()
        self._thread.join()

    def abandon(self) -> None:
        """End the thread without waiting for acknowledgements."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise AssertionError if pages could not be sent."""
        assert self._failed is None, f"the load failed: {self._failed}"

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._producer is None:  # a new one for a new topic: sequence numbers begin anew with it
                self._producer = Producer(
                    {
                        "bootstrap.servers": self._servers, "enable.idempotence": True, "acks": "all",
                        "message.timeout.ms": 0, "linger.ms": 5, "compression.type": "lz4",
                        "reconnect.backoff.max.ms": 1000, "log_level": 0,
                    }
                )  # fmt: skip
            if self._paused.is_set():
                self._producer.flush(0.2)
                if not self._unacknowledged:
                    self._producer = None
                    while self._paused.is_set() and not self._stop.is_set():
                        self._idle.set()
                        time.sleep(0.02)
                continue
            self._producer.poll(0)
            if self._unacknowledged < UNSENT and self.backlog < UNSENT:
                self._send()
            time.sleep(1 / self._rate)

    def _send(self) -> None:
        page, message = self._crawl.next()
        topic_id = self.topic_id

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._unacknowledged -= 1
            if error is not None:
                self._failed = str(error)
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            # A broker that had it already does not say where; nobody else writes, so it is in its turn.
            due = self._next.get((topic_id, partition), 0)
            assert offset is None or offset == due, f"{topic_id} {partition}: {offset}, not {due}"
            self._next[topic_id, partition] = due + 1
            self.given.give((topic_id, partition, due), page)

        assert self._producer is not None
        self._unacknowledged += 1
        self.sent += 1
        self._producer.produce(self._topic, message, on_delivery=on_delivery)
