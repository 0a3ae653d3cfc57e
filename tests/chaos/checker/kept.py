"""Which page of each cluster is kept, of all verdicts, and what the topic of kept pages says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition


class JudgedPage(NamedTuple):
    """A page with its verdict."""

    place: tuple[int, int]
    """Offset in the journal and row, in the order of judgement."""
    id: str
    url: str | None
    """Digest of its URL."""
    verdict: str
    cluster: str | None
    length: int
    time: int = 0
    """Log time of its record, in milliseconds since the epoch."""


class Turn(NamedTuple):
    """A turn: URLs leave their clusters that were not seen for a lifetime."""

    offset: int
    """The journal record before which it stands."""
    time: int
    """Its log time."""


def longest(
    judged: Iterable[JudgedPage],
    turns: Iterable[Turn] = (),
    lifetime: int | None = None,
    forgotten: Set[str] = frozenset(),
) -> dict[str, str | None]:
    """Return cluster -> the URL that is kept, by `longest`; None where no URL is left. `forgotten` are ids of
    pages, all of their URLs until then."""
    versions: dict[str, list[JudgedPage]] = {}
    found: dict[str, str | None] = {}
    last: dict[str, JudgedPage] = {}
    """URL -> its newest version, in the order of these."""

    def expire(until: int) -> None:
        while last and (page := next(iter(last.values()))).time <= until:
            url = page.url or page.id
            del last[url]
            versions[url].append(page._replace(cluster=None))

    waiting = deque(turns)
    for page in sorted(judged):
        while waiting and lifetime is not None and waiting[0].offset <= page.place[0]:
            expire(waiting.popleft().time - lifetime)
        if page.verdict != "rejected" and page.id not in forgotten:
            url = page.url or page.id
            versions.setdefault(url, []).append(page)
            last.pop(url, None)
            last[url] = page
        if page.cluster == page.id:
            found[page.id] = None
    for turn in waiting:
        if lifetime is not None:
            expire(turn.time - lifetime)
    ranks: dict[str, list[tuple[int, tuple[int, int], str]]] = {}
    for url, pages in versions.items():
        newest = pages[-1]
        if newest.cluster is None:
            continue
        since = newest.place
        for page in reversed(pages):
            if page.cluster != newest.cluster:
                break
            since = page.place
        ranks.setdefault(newest.cluster, []).append((-newest.length, since, url))
    return found | {cluster: min(members)[2] for cluster, members in ranks.items()}


def told(servers: str, topic: str, partitions: int) -> dict[str, str | None]:
    """Return cluster -> the URL that the last record about it says is kept."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
        }
    )  # fmt: skip
    found: dict[str, str | None] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        ended = set[int]()
        while len(ended) < partitions:
            for message in consumer.consume(500, 0.5):
                if (error := message.error()) is not None:
                    partition = message.partition()
                    if error.code() == KafkaError._PARTITION_EOF and partition is not None:
                        ended.add(partition)
                    continue
                key, headers = message.key(), dict(message.headers() or [])
                assert isinstance(key, bytes)
                digest = headers.get("digest")
                found[key.decode()] = digest.hex() if isinstance(digest, bytes) else None
    finally:
        consumer.close()
    return found


def compare(
    judged: Iterable[JudgedPage],
    said: dict[str, str | None],
    turns: Iterable[Turn] = (),
    lifetime: int | None = None,
    forgotten: Set[str] = frozenset(),
) -> list[str]:
    """Name the clusters of which something else is told. Without a record, the first page is kept."""
    judged = list(judged)
    first = {page.id: page.url for page in judged}
    wanted = longest(judged, turns, lifetime, forgotten)
    wrong = [
        f"cluster {cluster}: keeps {said.get(cluster, first.get(cluster))}, due {url}"
        for cluster, url in wanted.items()
        if said.get(cluster, first.get(cluster)) != url
    ]
    return wrong + [f"cluster {cluster}: nobody began it" for cluster in said.keys() - wanted.keys()]
