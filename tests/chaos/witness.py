"""A witness that shares no code with the system: it reads the topics and says what should have come out.

The journal is unpacked by hand, re-deliveries are trimmed by hand, the oracle judges page by page, and the
verdicts are read with `read_committed` like any consumer reads them. Shingles are those of the published
texts, so that similarities are held against the texts rather than against what the worker made of them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.quality.truth import shingles
from tests.oracle import Oracle, OraclePage

ONE_SHINGLE = 0.02
"""More than the similarity grows by one common shingle more, of pages of 60 words or more."""


async def read_all(servers: str, topic: str):
    """Return all committed records of a topic, partition by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest",
        max_partition_fetch_bytes=16 << 20,
    )  # fmt: skip
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        if not partitions:
            await consumer._client.fetch_all_metadata()
            count = len(await consumer._client._wait_on_metadata(topic) or ())
            partitions = [TopicPartition(topic, p) for p in range(count)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        records = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for found in (await consumer.getmany(partition, timeout_ms=200)).values():
                    records += found
        return records
    finally:
        await consumer.stop()


@dataclass
class Statement:
    pages: int = 0
    missing: list = field(default_factory=list)
    repeated: list = field(default_factory=list)
    different: list = field(default_factory=list)
    inexact: list = field(default_factory=list)
    """Similarities that are too high by a common shingle: of those that are counted, at most 1 in 1,000."""
    verdicts: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.pages} pages: missing {len(self.missing)}, repeated {len(self.repeated)}, "
            f"different {len(self.different)}, inexact {len(self.inexact)}; {dict(self.verdicts)}"
        )


async def bear_witness(servers: str, namespace: str, oracle: Oracle | None = None) -> Statement:
    """Compare pages, journal and verdicts of a deployment whose pages have one topic id."""
    oracle = oracle or Oracle()
    topic = f"{namespace}.pages"
    messages = await read_all(servers, topic)
    pages = {(topic, r.partition, r.offset): _shingles(r.value) for r in messages}
    given: dict[tuple, list] = {}
    said = Statement(pages=len(pages))
    for record in await read_all(servers, f"{namespace}.verdicts"):
        verdict = json.loads(record.value)
        said.verdicts[verdict["verdict"]] += 1
        source = verdict["source"]
        place = source["topic"], source["topic_id"], source["partition"], source["offset"]
        given.setdefault(place, []).append(verdict)
    said.missing = sorted(pages.keys() - {(topic, *place) for topic, _, *place in given})
    said.repeated = sorted(place for place, verdicts in given.items() if len(verdicts) > 1)

    (genesis,) = await read_all(servers, f"{namespace}.genesis")
    journal = msgspec.msgpack.decode(genesis.value)["journal"]
    for place, page in _rows_in_order(journal, await read_all(servers, f"{namespace}.journal")):
        page.shingles = pages.get((place[0], *place[2:]))
        want = oracle.judge(page)
        for got in given.get(place, ()):
            nearest = got.get("nearest") or {"id": None, "similarity": None}
            found = (
                got["id"], got["verdict"], got["change"], got["cluster"],
                got["duplicate_of"] and got["duplicate_of"]["id"], got["distance"],
                nearest["id"], nearest["similarity"],
            )  # fmt: skip
            cluster = want.cluster if want.verdict in ("unique", "duplicate", "recrawl") else None
            due = (
                want.id, want.verdict, want.change, cluster, want.other, want.distance,
                want.nearest, want.nearest_similarity and want.nearest_similarity / 10_000,
            )  # fmt: skip
            similarity = want.similarity and want.similarity / 10_000
            above = (got["similarity"] or 0) - (similarity or 0)
            if found == due and 1e-4 < above < ONE_SHINGLE:
                said.inexact.append((found, got["similarity"], similarity))
            elif found != due or abs(above) > 1e-4:
                said.different.append((found, due, got["similarity"], similarity))
    if len(said.inexact) > 2 + len(pages) / 1000:
        said.different += said.inexact
    return said


def _shingles(value):
    """Return the shingles of a page message with a plain text; None for others."""
    try:
        text = json.loads(value).get("text")
    except ValueError:
        return None
    return frozenset(shingles(text)) if isinstance(text, str) and text.isascii() else None


def _rows_in_order(journal, records):
    """Return source coordinates and page of every row of the journal, without re-deliveries."""
    expected: dict[tuple, int] = {}
    for record in records:
        content = msgspec.msgpack.decode(record.value)
        row = 0
        count = len(content["status"])
        size = len(content["sketch"]) // max(1, count)
        for cluster, topic, topic_id, partition, start, end, rows, *flags in content["ranges"]:
            key = cluster, topic_id, partition
            admitted = start <= expected.get(key, -1) or bool(flags and flags[0])
            since = max(expected.get(key, start), start)
            for i in range(row, row + rows):
                offset = int.from_bytes(content["offset"][8 * i : 8 * i + 8], "little")
                if admitted and offset >= since:
                    yield (
                        (topic, topic_id, partition, offset),
                        OraclePage(
                            f"{journal[:8]}.{record.offset}.{i}",
                            _url(content, i),
                            int.from_bytes(content["fingerprint"][8 * i : 8 * i + 8], "little"),
                            content["sketch"][size * i : size * i + size],
                            content["status"][i],
                        ),
                    )
            row += rows
            if admitted:
                expected[key] = max(since, end)


def _url(content, row):
    """Return the digest of a row's URL, by which URLs are compared; None for one that has none."""
    digest = content["url_digest"][16 * row : 16 * row + 16]
    return digest if any(digest) else None
