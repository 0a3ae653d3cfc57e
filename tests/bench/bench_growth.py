"""The judge's core as its tables grow: speed, memory and disk; then how fast it starts and is rebuilt.

    python -m tests.bench.bench_growth [anchors]

No Kafka here: the journal's records are decided and applied batch after batch, flushed as a judge does.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.options import VerdictOptions
from stream.judge.state import State
from stream.messages.decision import Decisions
from stream.messages.journal import Genesis, decode_journal
from tests.bench.bench_judge import TRANSACTION
from tests.bench.journal import NEAR, ROWS, journal

POINTS = 10
"""Points of the curve."""
FLUSH_ROWS = 100_000
"""About what a judge decides between two flushes."""
REBUILT_ROWS = 300_000
MEMORY = 4 << 30


def _open(directory: Path) -> tuple[State, Judge]:
    scheme = Scheme()
    genesis = Genesis(journal="ab" * 16, scheme=scheme, scheme_id=scheme.id, options=VerdictOptions())
    state = State(directory, genesis, "c", memory=MEMORY, generation=1_000_000, cache=256 << 20)
    return state, Judge(state, genesis)


def _batches(rows: int) -> Iterator[list[Entry]]:
    """Batches as large as a transaction under load."""
    batch: list[Entry] = []
    for offset, record in enumerate(journal(rows, Scheme()), start=1):
        value = record.encode()
        batch.append(Entry(offset, 1000, offset.to_bytes(16, "big"), decode_journal(value, offset)))
        if len(batch) * ROWS >= TRANSACTION:
            yield batch
            batch = []
    if batch:
        yield batch


def _grow(directory: Path, anchors: int) -> list[dict[str, Any]]:
    state, judge = _open(directory)
    process = psutil.Process()
    curve: list[dict[str, Any]] = []
    seconds, rows, unflushed, longest = 0.0, 0, 0, 0.0
    for batch in _batches(int(anchors / (1 - NEAR) * 1.02)):
        began = time.perf_counter()
        decided = judge.decide(batch)
        judge.apply(batch, decided.record())
        longest = max(longest, time.perf_counter() - began)
        unflushed += len(decided.batch)
        if unflushed >= FLUSH_ROWS:
            state.flush()
            unflushed = 0
        seconds += time.perf_counter() - began
        rows += len(decided.batch)
        if state.tables.count >= anchors * (len(curve) + 1) / POINTS:
            stats = state.tables.stats
            curve.append(
                {
                    "anchors": state.tables.count,
                    "rows_per_second": round(rows / seconds),
                    "longest_batch_ms": round(longest * 1000),
                    "rss_mib": process.memory_info().rss >> 20,
                    "disk_bytes_an_anchor": round(state.store.disk_bytes() / state.tables.count),
                    "hot_anchors": stats.hot_anchors,
                }
            )
            seconds, rows, longest = 0.0, 0, 0.0
    state.close()
    return curve


def _slope(curve: list[dict[str, Any]]) -> int:
    """Bytes of RSS an anchor took, from the first point to the last."""
    more = curve[-1]["anchors"] - curve[0]["anchors"]
    return round((curve[-1]["rss_mib"] - curve[0]["rss_mib"]) * 2**20 / max(1, more))


def _start(directory: Path) -> float:
    """Seconds until an existing state is ready."""
    gc.collect()
    began = time.perf_counter()
    state, _ = _open(directory)
    seconds = time.perf_counter() - began
    state.close()
    return seconds


def _rebuild(directory: Path) -> dict[str, Any]:
    """Deciding a journal against applying what was decided of it."""
    batches = list(_batches(REBUILT_ROWS))
    state, judge = _open(directory / "first")
    log: list[Decisions] = []
    began = time.perf_counter()
    for batch in batches:
        decided = judge.decide(batch)
        log.append(decided.record())
        judge.apply(batch, log[-1])
    deciding = time.perf_counter() - began
    state.close()
    state, judge = _open(directory / "second")
    began = time.perf_counter()
    for batch, decisions in zip(batches, log, strict=True):
        judge.apply(batch, decisions)
    applying = time.perf_counter() - began
    state.close()
    return {
        "rows": REBUILT_ROWS,
        "decided_per_second": round(REBUILT_ROWS / deciding),
        "rebuilt_per_second": round(REBUILT_ROWS / applying),
        "ratio": round(deciding / applying, 2),
    }


def run(anchors: int = 2_000_000) -> dict[str, Any]:
    """The curve, `seconds_to_start` at its end, and the speed of a rebuild beside that of deciding."""
    directory = Path(tempfile.mkdtemp(prefix="neardup-bench-"))
    try:
        curve = _grow(directory / "grown", anchors)
        return {
            "curve": {f"{point['anchors']:,}": point for point in curve},
            "last_to_first": round(curve[-1]["rows_per_second"] / curve[0]["rows_per_second"], 3),
            "rss_bytes_an_anchor": _slope(curve),
            "disk_bytes_an_anchor": curve[-1]["disk_bytes_an_anchor"],
            "seconds_to_start": round(_start(directory / "grown"), 2),
            "rebuild": _rebuild(directory),
        }
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")
