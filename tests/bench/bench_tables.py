"""How fast rows are probed and anchors inserted: 5 million anchors with 4 GiB, 20 million with 1 GiB.

The workload of the prototype: batches of 1000 in which 30 % are near-duplicates of earlier rows (0 to 8
bits), 1 % are among 100 hot pages and the rest is new; a row becomes an anchor unless one within 3 bits is
found. Preloaded anchors: 11 % are variants of earlier ones.
"""

from __future__ import annotations

import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.judge.decision.decide import THREADS
from stream.tables.design import Design
from stream.tables.search.probing import SearchOptions
from stream.tables.store.rocks import Store
from stream.tables.tables import Tables

BATCH = 1000
SHARES = (0.25, 0.2, 0.15, 0.12, 0.1, 0.07, 0.05, 0.04, 0.02)
"""Of distances, 0 to 8 bits, of rows to the stored ones that they are near."""
GENERATION = 1_000_000
INSERTED = 2800
"""Anchors of a judge's transaction of 4096 pages."""
RAM = 4 << 30
"""`tables_memory` of the first, bytes."""
BUDGET = 1 << 30
"""And of the second."""
WARM = 20
"""Batches before the measured ones."""
WARM_BEYOND = 400
"""The same where tables are read from RocksDB: a page of a file costs more when it is first read."""

U64 = NDArray[np.uint64]


def flip(rng: np.random.Generator, rows: U64, counts: NDArray[np.int64]) -> U64:
    """Each row with that many distinct random bits flipped."""
    order = np.argsort(rng.random((len(rows), 64)), axis=1)[:, :8].astype(np.uint64)
    bits = np.where(np.arange(8) < counts[:, None], np.uint64(1) << order, np.uint64(0))
    return rows ^ np.bitwise_or.reduce(bits, axis=1)


def preloaded(n: int) -> U64:
    """Stored rows, of which 11 % are variants of earlier ones."""
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 1 << 64, n, dtype=np.uint64)
    variants = np.flatnonzero(rng.random(n) < 0.11)
    variants = variants[variants > n // 10]
    counts = rng.choice([4, 5, 6, 7, 8], len(variants), p=[0.36, 0.25, 0.18, 0.14, 0.07])
    rows[variants] = flip(rng, rows[(rng.random(len(variants)) * n / 10).astype(np.int64)], counts)
    return rows


def batches(rng: np.random.Generator, earlier: U64, n: int) -> list[U64]:
    """Rows to search for, and to insert."""
    hot = rng.integers(0, 1 << 64, 100, dtype=np.uint64)
    made = []
    for _ in range(n):
        rows = rng.integers(0, 1 << 64, BATCH, dtype=np.uint64)
        draw = rng.random(BATCH)
        near, again = np.flatnonzero(draw < 0.30), np.flatnonzero((draw >= 0.30) & (draw < 0.31))
        rows[near] = flip(rng, rng.choice(earlier, len(near)), rng.choice(9, len(near), p=SHARES))
        rows[again] = rng.choice(hot, len(again))
        made.append(rows)
    return made


def open_tables(store: Store, memory: int) -> Tables:
    """Ten tables of fingerprints."""
    options = SearchOptions(distance=10, cap=256)
    return Tables(store, Design(5, 2), options, memory=memory, generation=GENERATION)


def fill(folder: Path, anchors: U64, memory: int) -> dict[str, Any]:
    """Insert all anchors, as many at once as a judge's transaction has, and freeze what is due."""
    with Store(folder, 256 << 20) as store:
        tables = open_tables(store, memory)
        spent = []
        for first in range(0, len(anchors), INSERTED):
            start = time.perf_counter()
            batch = store.batch()
            tables.insert(batch, anchors[first : first + INSERTED], {})
            spent.append(time.perf_counter() - start)
            store.write(batch)
            tables.maintain()
        start = time.perf_counter()
        tables.maintain(wait=True)
        answer = {
            "inserts_per_second": round(len(anchors) / sum(spent)),
            "median_insert_ms": round(float(np.median(spent)) * 1e3, 2),
            "largest_insert_ms": round(max(spent) * 1e3, 1),
            "freeze_seconds": round(time.perf_counter() - start, 2),
            "disk_bytes_an_anchor": round(store.disk_bytes() / len(anchors), 1),
        }
        store.flush()
        tables.close()
    return answer


def measure(folder: Path, anchors: U64, memory: int, turns: int, warm: int) -> dict[str, Any]:
    """Open what is there, then probe, with as many threads as a judge has, and insert `turns` batches."""
    with Store(folder, 256 << 20) as store, ThreadPoolExecutor(THREADS) as pool:
        start = time.perf_counter()
        tables = open_tables(store, memory)
        opened = time.perf_counter() - start
        work = batches(np.random.default_rng(11), anchors, turns + warm)
        spent = []
        for rows in work:
            start = time.perf_counter()
            halves = pool.map(tables.search, np.split(rows, THREADS))
            unique = np.ones(len(rows), bool)
            for part, found in enumerate(halves):
                unique[found.row[found.distance <= 3] + part * BATCH // THREADS] = False
            batch = store.batch()
            tables.insert(batch, rows[unique], {})
            store.write(batch)
            tables.maintain()
            spent.append(time.perf_counter() - start)
        times, stats = np.array(spent[warm:]), tables.stats
        answer = {
            "rows_per_second": round(BATCH * len(times) / times.sum()),
            "rows_per_second_at_the_median": round(BATCH / float(np.median(times))),
            "p99_ms": round(float(np.percentile(times, 99)) * 1e3, 2),
            "restart_seconds": round(opened, 2),
            "hot_anchors": stats.hot_anchors,
            "cold_anchors": stats.cold_anchors,
            "rocks_probes_a_row": round(stats.rocks_probes / BATCH / len(work), 2),
            "rocks_hits_a_row": round(stats.rocks_hits / BATCH / len(work), 2),
        }
        tables.close()
    return answer


def run(anchors: int = 5_000_000, beyond: int = 20_000_000, turns: int = 150) -> dict[str, Any]:
    """Rows a second with all anchors in RAM (hot) and most in RocksDB (cold)."""
    answer: dict[str, Any] = {"hot anchors": anchors, "cold anchors": beyond}
    for tier, count, memory, warm in (
        ("hot", anchors, RAM, WARM),
        ("cold", beyond, BUDGET, WARM_BEYOND),
    ):
        rows = preloaded(count)
        with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
            answer[f"{tier} growth"] = fill(Path(folder), rows, memory)
            answer[tier] = measure(Path(folder), rows, memory, turns, warm)
    answer["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return answer
