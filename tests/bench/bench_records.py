"""Journal and decision records: bytes a page, and what they cost worker and judge.

Half the rows are pages of random fingerprints, 30 % of them near-duplicates of earlier ones; then the same
pages come again.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import cramjam

from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.rehearse import rehearse
from stream.judge.state.state import State
from stream.messages.decision import encode_decisions
from stream.messages.journal import Rows, SourceRange, decode_journal
from tests.bench.journal import PARTITIONS, ROWS, journal
from tests.genesis import genesis_of
from tests.url_digests import digest_of_url

BATCH: Final = 64
"""Records a transaction of the judge."""
RUNS: Final = 7
SCHEME: Final = Scheme()


def run(rows: int = 262_144) -> dict[str, Any]:
    """Bytes as encoded and as compressed by zstd, and microseconds of processor time, each a row."""
    genesis = genesis_of(SCHEME)
    rehearse(genesis)
    first = list(journal(rows // 2, SCHEME))
    values = [each.encode() for each in (*first, *_again(first))]
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        state = State(
            Path(directory) / "state", genesis, "c", memory=1 << 30, generation=1 << 20, cache=8 << 20
        )
        try:
            decided = _judged(Judge(state, genesis), values)
        finally:
            state.close()
    return {
        "rows": rows,
        "journal": _size(values, rows) | {"encode_us": _worker_us(), "decode_us": _decode_us(values)},
        "decisions_of_new_pages": decided[0],
        "decisions_of_pages_that_came_again": decided[1],
    }


def _again(records: list[Rows]) -> Iterator[Rows]:
    ends = [max(each.ranges[0].end for each in records[p::PARTITIONS]) for p in range(PARTITIONS)]
    for each in records:
        (source,) = each.ranges
        moved = ends[source.partition]
        again = SourceRange(
            source.cluster,
            source.topic,
            source.topic_id,
            source.partition,
            source.start + moved,
            source.end + moved,
            source.rows,
        )
        yield dataclasses.replace(each, ranges=[again], offset=each.offset + moved)


def _judged(judge: Judge, values: list[bytes]) -> list[dict[str, Any]]:
    """Of the first and the second half of the records."""
    found = []
    for half in (0, len(values) // 2):
        records, rows, spent, counts = [], 0, 0.0, {"duplicate": 0, "recrawl": 0}
        for start in range(half, half + len(values) // 2, BATCH):
            part = list(enumerate(values[start : start + BATCH], start + 1))
            began = time.process_time()
            entries = [
                Entry(offset, 1000 + offset, digest_of(value), _rows(value, offset)) for offset, value in part
            ]
            judged = judge.decide(entries)
            decisions = judged.record()
            prepared = judge.prepare(entries, decisions, judged.batch)
            judged.json()
            judge.state.apply(prepared, start + BATCH)
            spent += time.process_time() - began
            records.append(encode_decisions(decisions))
            rows += len(judged.batch)
            for verdict in counts:
                counts[verdict] += judged.counts.get(verdict, 0)
        shares = {f"{verdict}s": round(count / rows, 2) for verdict, count in counts.items()}
        found.append(_size(records, rows) | shares | {"judge_us": round(spent / rows * 1e6, 2)})
    return found


def _rows(value: bytes, offset: int) -> Rows:
    found = decode_journal(value, offset)
    assert isinstance(found, Rows)
    return found


def _size(records: list[bytes], rows: int) -> dict[str, float]:
    small = sum(len(cramjam.zstd.compress(each, level=3)) for each in records)
    return {"bytes": round(sum(map(len, records)) / rows, 1), "zstd_bytes": round(small / rows, 1)}


def _worker_us() -> float:
    urls = [f"https://host-{i % 97}.example/articles/2026/{i}.html" for i in range(ROWS)]
    rows = [
        Row(Status.READY, url, 1_790_000_000_000, digest_of_url(url), i, sketch=bytes(SCHEME.sketch_bytes))
        for i, url in enumerate(urls)
    ]
    source = [SourceRange("c", "pages", "0" * 32, 0, 0, ROWS, ROWS)]
    keys = [url.encode() for url in urls]
    return _least_us(lambda: Rows.of(SCHEME, source, rows, range(ROWS), keys).encode(), ROWS)


def _decode_us(values: list[bytes]) -> float:
    some = values[:BATCH]
    return _least_us(lambda: [decode_journal(each, 1) for each in some], BATCH * ROWS)


def _least_us(work: Callable[[], object], rows: int) -> float:
    least = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(10):
            work()
        least = min(least, time.process_time() - began)
    return round(least / 10 / rows * 1e6, 2)
