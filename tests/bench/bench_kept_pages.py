"""Bytes on the topic `best` for each page of a crawl, by policy.

Of ten pages seven are unique and three duplicates, with other lengths, times, hosts and qualities than their
anchors. Then all URLs are fetched again, one in ten with another length. What is due is told after each
16,384 pages, and written as a producer writes it: by partition, with keys and headers, compressed by zstd.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import cramjam
import numpy as np

from stream.elector.elector import Due, Elector
from stream.elector.layout import NOBODY
from stream.elector.state import State
from stream.fingerprint.scheme import Scheme
from stream.messages.best import DIGEST_HEADER, ELECT_HEADER, WAS_HEADER, encode_best
from stream.messages.journal import Rows
from tests.bench.bench_elector import CACHE, RECORDS, MadeVerdicts, decode
from tests.bench.journal import ROWS
from tests.bench.made_rows import hashes
from tests.genesis import genesis_of

POLICIES: Final = ("first", "longest", "newest", "quality", "hosts=host-1.example,host-2.example")
PARTITIONS: Final = 8
A_TICK: Final = 16_384
OVERHEAD: Final = 12
"""Bytes of a record besides key, value and headers, about."""


class Crawl(MadeVerdicts):
    """With times in the order of the pages, a minute early or late, and a quality of two thirds of them."""

    def _record(self, number: int) -> Rows:
        rows = super()._record(number)
        numbers = np.arange(ROWS) + number * ROWS
        late = hashes(numbers, 1, 11)[:, 0] % np.uint64(120_000)
        rows.fetched_at[:] += numbers * 10 + late.astype(np.int64)
        urls = numbers % (self.records * ROWS)
        score = hashes(urls, 1, 12)[:, 0] % np.uint64(150)
        rows.quality[:] = np.where(score < 100, score / 100, np.nan)
        return rows


def run(rows: int = 262_144) -> dict[str, Any]:
    """Bytes on the topic for each page, of a crawl and of its recrawl, and records for a thousand pages."""
    return {policy.partition("=")[0]: _measure(policy, rows) for policy in POLICIES}


def _measure(elect: str, rows: int) -> dict[str, Any]:
    genesis = genesis_of(Scheme())
    crawl, found = Crawl(rows, genesis), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        state = State.open(Path(directory) / "elector", genesis, "c", elect, cache=CACHE)
        elector = Elector(state, genesis)
        try:
            for name, first in (("crawl", 0), ("recrawl", crawl.records)):
                told = size = 0
                for start in range(first, first + crawl.records, RECORDS):
                    elector.apply([decode(crawl.encoded(start))])
                    if (start - first) * ROWS % A_TICK and start + RECORDS < first + crawl.records:
                        continue
                    while due := elector.due(8192):
                        told, size = told + len(due), size + _written(due, elect)
                        elector.tell(due, {})
                pages = crawl.records * ROWS
                found[f"bytes_a_page_of_a_{name}"] = round(size / pages, 1)
                found[f"records_for_1000_pages_of_a_{name}"] = round(1000 * told / pages, 1)
        finally:
            state.close()
    return found


def _written(due: list[Due], elect: str) -> int:
    """Bytes of these records on the topic."""
    batches = [bytearray() for _ in range(PARTITIONS)]
    for each in due:
        batch = batches[each.cluster % PARTITIONS]
        batch += bytes(OVERHEAD) + each.record.cluster.encode() + encode_best(each.record)
        batch += ELECT_HEADER.encode() + elect.encode()
        for name, digest in ((DIGEST_HEADER, each.digest), (WAS_HEADER, each.was)):
            if digest != NOBODY:
                batch += name.encode() + digest
    return sum(len(bytes(cramjam.zstd.compress(bytes(batch)))) for batch in batches if batch)
