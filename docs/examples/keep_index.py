"""Keep an index right with verdicts and the topic `best`: `python keep_index.py index.json`.

The index has one page of each cluster. Reads what is new on both topics, says what to do with each page, and
stores the index with its positions in the topics, so it may be called as seldom or often as you like.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

from aiokafka import AIOKafkaConsumer

SERVERS = os.environ.get("NEARDUP_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
NAMESPACE = os.environ.get("NEARDUP_NAMESPACE", "neardup")
VERDICTS, BEST = f"{NAMESPACE}.verdicts", f"{NAMESPACE}.best"


class Index:
    """The kept pages. `clusters`: cluster -> URL, None where no page is left, and as of which page."""

    def __init__(self, clusters: dict[str, tuple[str | None, list[int]]]) -> None:
        self.clusters = clusters
        self.keepers = Counter(url for url, _ in clusters.values() if url)  # URL -> clusters that keep it

    def read_verdict(self, verdict: dict) -> None:
        # Each unique page begins a cluster, and so does a recrawl whose cluster has ended. What `best` said
        # of it is later, even if it is read before.
        if verdict["cluster"] == verdict["id"] and verdict["cluster"] not in self.clusters:
            self.keep(verdict["cluster"], verdict["url"], place(verdict["id"]))

    def read_best(self, best: dict) -> None:
        _, as_of = self.clusters.get(best["cluster"], (None, [0, 0]))
        if place(best["as_of"]) >= as_of:  # else a repetition: a later record was read before
            self.keep(best["cluster"], best["best"] and best["best"]["url"], place(best["as_of"]))

    def keep(self, cluster: str, new: str | None, as_of: list[int]) -> None:
        old, _ = self.clusters.get(cluster, (None, None))
        self.clusters[cluster] = new, as_of
        if new == old:
            return
        # A page that changed may be in its new cluster before it is known to have left the old one. So only
        # the first cluster that keeps a URL inserts it, and only the last one deletes it.
        self.keepers.update([new] if new else [])
        self.keepers.subtract([old] if old else [])
        inserts, deletes = new and self.keepers[new] == 1, old and not self.keepers[old]
        if inserts and deletes:
            print("swap", old, "for", new)
        elif inserts:
            print("insert", new)
        elif deletes:
            print("delete", old)

    def urls(self) -> list[str]:
        return sorted(url for url, clusters in self.keepers.items() if clusters)


def place(page_id: str) -> list[int]:
    """The numbers by which ids sort in the order of judgement."""
    return [int(number) for number in page_id.split(".")[1:]]


async def main(path: Path) -> None:
    stored = json.loads(path.read_text()) if path.exists() else {"clusters": {}, "positions": {}}
    index, positions = Index(stored["clusters"]), stored["positions"]
    async with AIOKafkaConsumer(
        VERDICTS,
        BEST,
        bootstrap_servers=SERVERS,
        isolation_level="read_committed",  # without it, verdicts of aborted transactions are seen too
        auto_offset_reset="none",
    ) as consumer:
        partitions = consumer.assignment()
        first, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            name = f"{partition.topic} {partition.partition}"
            if partition.topic == VERDICTS and first[partition] > positions.get(name, 0):
                sys.exit(
                    f"{name}: verdicts up to {first[partition]} are deleted; begin with an export of them"
                )
            consumer.seek(partition, max(first[partition], positions.get(name, 0)))
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                read = index.read_verdict if partition.topic == VERDICTS else index.read_best
                for record in records:
                    read(json.loads(record.value))
        for partition in partitions:
            positions[f"{partition.topic} {partition.partition}"] = await consumer.position(partition)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"clusters": index.clusters, "positions": positions}))
    new.replace(path)  # whole or not at all
    print(len(index.urls()), "pages in the index")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
