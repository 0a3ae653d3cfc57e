"""What tables take while a window moves through them: the first anchors go as fast as new ones come.

    python -m tests.bench.bench_window [anchors] [window] [memory]

Random anchors, 2800 at a time, of which one in eight is a copy of an earlier one with few bits flipped. Once
there are as many as the window has, the first ones go, 65,536 at a time.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stream.tables.design import Design
from stream.tables.search.probing import SearchOptions
from stream.tables.store.rocks import Store
from stream.tables.tables import IndexKind, Tables
from tests.bench.bench_tables import INSERTED, U64, flip

PARTS = 6
GENERATION = 20_000
RAISED = 1 << 16
PROBED = 1000


def open_tables(store: Store, memory: int) -> Tables:
    options, kind = SearchOptions(0, 0, distance=10, cap=256), IndexKind(windowed=True)
    return Tables(store, Design(5, 2), options, memory=memory, generation=GENERATION, kind=kind)


def rows_of(rng: np.random.Generator, earlier: U64) -> U64:
    rows = rng.integers(0, 1 << 64, INSERTED, dtype=np.uint64)
    near = np.flatnonzero(rng.random(INSERTED) < 1 / 8)
    if len(earlier):
        rows[near] = flip(rng, rng.choice(earlier, len(near)), rng.integers(0, 8, len(near)))
    return rows


def _resident() -> int:
    """RAM of this process in bytes, without pages of files."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


def measure(folder: Path, anchors: int, window: int, memory: int) -> list[dict[str, float]]:
    """By parts of the anchors: RAM and disk at the end, and times of probes, inserts and raising."""
    rng, measured = np.random.default_rng(1), list[dict[str, float]]()
    earlier = np.zeros(0, np.uint64)
    uncertain = np.zeros((PROBED, 32), np.uint8)
    store = Store(folder, 10, 64 << 20)
    tables = open_tables(store, memory)
    for part in range(PARTS):
        probed, inserted, raised = list[float](), list[float](), list[float]()
        before = tables.stats
        while tables.count < anchors * (part + 1) // PARTS:
            rows = rows_of(rng, earlier)
            start = time.process_time()
            tables.search(rows[:PROBED], uncertain)
            probed.append(time.process_time() - start)
            start, batch = time.perf_counter(), store.batch()
            tables.insert(batch, rows, {0: 3})
            tables.kill(batch, np.array([tables.count - 5]))
            inserted.append(time.perf_counter() - start)
            if tables.count - tables.first >= window + RAISED:
                start = time.perf_counter()
                tables.raise_first(batch, tables.first + RAISED)
                raised.append(time.perf_counter() - start)
            store.write(batch)
            tables.maintain()
            earlier = np.concatenate([earlier, rows])[-window // 2 :]
        tables.maintain(wait=True)
        store.flush()
        stats = tables.stats
        reads = stats.rocks_probes - before.rocks_probes
        measured.append(
            {
                "anchors": tables.count,
                "left": tables.count - tables.first,
                "ram_mb": round(_resident() / 1e6),
                "disk_mb": round(store.disk_bytes() / 1e6, 1),
                "runs": stats.runs,
                "probe_us_a_row": round(1e6 * float(np.mean(probed)) / PROBED, 2),
                "groups_read_a_row": round(reads / (len(probed) * PROBED), 2),
                "insert_us_an_anchor": round(1e6 * float(np.mean(inserted)) / INSERTED, 2),
                "raise_ms": round(1e3 * max(raised, default=0), 1),
            }
        )
        sys.stderr.write(f"{json.dumps(measured[-1])}\n")
    tables.close()
    store.close()
    return measured


if __name__ == "__main__":
    anchors, window, memory = [int(float(each)) for each in sys.argv[1:]] + [3_000_000, 500_000, 32 << 20][
        len(sys.argv) - 1 :
    ]
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        found = measure(Path(folder) / "state", anchors, window, memory)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    sys.stdout.write(f"{json.dumps({'parts': found, 'peak_mb': round(peak)})}\n")
