"""Which page of each cluster is kept, of all verdicts, and what the topic of kept pages says."""

from __future__ import annotations

from collections.abc import Iterable
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


def longest(judged: Iterable[JudgedPage]) -> dict[str, str | None]:
    """Return cluster -> the URL that is kept, by `longest`; None where no URL is left."""
    versions: dict[str, list[JudgedPage]] = {}
    found: dict[str, str | None] = {}
    for page in sorted(judged):
        if page.verdict != "rejected":
            versions.setdefault(page.url or page.id, []).append(page)
        if page.cluster == page.id:
            found[page.id] = None
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


def compare(judged: Iterable[JudgedPage], said: dict[str, str | None]) -> list[str]:
    """Name the clusters of which something else is told. Without a record, the first page is kept."""
    judged = list(judged)
    first = {page.id: page.url for page in judged}
    wanted = longest(judged)
    wrong = [
        f"cluster {cluster}: keeps {said.get(cluster, first.get(cluster))}, due {url}"
        for cluster, url in wanted.items()
        if said.get(cluster, first.get(cluster)) != url
    ]
    return wrong + [f"cluster {cluster}: nobody began it" for cluster in said.keys() - wanted.keys()]
