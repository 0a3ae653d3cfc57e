"""The judge's core as its tables grow: speed, memory and disk; how fast it starts and is rebuilt.

No Kafka here: the journal's records are decided and applied batch after batch, and flushed beside that, as a
judge does. A machine may be twice as fast in one minute as in another: at each point of the curve a judge
that has just begun decides the same few batches, and speeds are compared as multiples of its own.
Memory is what the process has to itself: pages of table files that it maps are the page cache's.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.decision import Decisions
from stream.messages.journal import decode_journal
from stream.ops.runtime_tuning import batch_process_tuning
from stream.settings import Settings
from tests.bench.bench_judge import TRANSACTION
from tests.bench.journal import NEAR, ROWS, journal
from tests.genesis import genesis_of

MILLION = 1_000_000
POINTS = (100_000, MILLION, *range(2 * MILLION, 200 * MILLION, 2 * MILLION))
"""Points of the curve, as far as it goes; the last one is where it ends."""
STARTED = 5 * MILLION
"""Anchors at which a start is measured."""
REBUILT_ROWS = 300_000
FRESH_ROWS = 200_000
"""What a judge that has just begun decides at each point of the curve."""
CALM_SECONDS = 0.5
"""This long less than a tenth of a core, and nothing is being compacted any more."""
PATIENCE = 60.0
MEMORY = 1 << 30
"""The default."""


def own_mib() -> int:
    """Memory of this process alone."""
    with open("/proc/self/status") as lines:
        (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) >> 10


def _open(directory: Path) -> tuple[State, Judge]:
    scheme = Scheme()
    genesis = genesis_of(scheme)
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


class Flushes:
    """Flushes beside the work, as often as a judge's."""

    def __init__(self) -> None:
        self._beside = ThreadPoolExecutor(1, "flush")
        self._flushing: Future[None] | None = None
        self._begun = time.monotonic()
        self._seconds = Settings().flush_seconds

    def begin_if_due(self, state: State) -> None:
        """Begin one, unless one is under way or the last one is not long ago."""
        under_way = self._flushing is not None and not self._flushing.done()
        if not under_way and time.monotonic() - self._begun > self._seconds:
            self.end()
            self._begun, self._flushing = time.monotonic(), self._beside.submit(state.flush)

    def end(self) -> None:
        """Wait for what is under way."""
        if self._flushing is not None:
            self._flushing.result()
            self._flushing = None


def _decide(directory: Path, batches: list[list[Entry]]) -> tuple[float, list[Decisions]]:
    """Seconds that a judge takes who begins with these batches, and what is decided."""
    state, judge = _open(directory)
    log: list[Decisions] = []
    began = time.perf_counter()
    for batch in batches:
        log.append(judge.decide(batch).record())
        judge.apply(batch, log[-1])
    seconds = time.perf_counter() - began
    state.close()
    return seconds, log


class _Fresh:
    """A judge that has just begun: how fast the machine is at a moment."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._batches = list(_batches(FRESH_ROWS))
        self.rows_per_second()  # compiles

    def rows_per_second(self) -> int:
        """Measured where nothing else of this process is at work."""
        seconds, _ = _decide(self._directory, self._batches)
        shutil.rmtree(self._directory)
        return round(FRESH_ROWS / seconds)


def _calm_down(state: State) -> float:
    """Return when compactions and what else goes on in the background have ended: the seconds it took."""
    began = time.monotonic()
    state.tables.maintain(wait=True)
    patience = time.monotonic() + PATIENCE
    while time.monotonic() < patience:
        spent = time.process_time()
        time.sleep(CALM_SECONDS)
        if time.process_time() - spent < 0.1 * CALM_SECONDS:
            return time.monotonic() - began - CALM_SECONDS
    raise NeardupError(f"bench: still busy after {PATIENCE:g} s")


def _grow(directory: Path, anchors: int) -> tuple[list[dict[str, Any]], float]:
    """The curve, and seconds that a start took at `STARTED` anchors, or at the end before that."""
    state, judge = _open(directory)
    curve: list[dict[str, Any]] = []
    points = [point for point in POINTS if point < anchors] + [anchors]
    started = 0.0
    seconds, rows, longest, flushes = 0.0, 0, 0.0, Flushes()
    fresh = _Fresh(directory.with_name("fresh"))
    for batch in _batches(int(anchors / (1 - NEAR) * 1.02)):
        began = time.perf_counter()
        decided = judge.decide(batch)
        judge.apply(batch, decided.record())
        longest = max(longest, time.perf_counter() - began)
        flushes.begin_if_due(state)
        seconds += time.perf_counter() - began
        rows += len(decided.batch)
        if state.tables.count >= min(STARTED, anchors) and not started:
            flushes.end()
            state.close()
            del state, judge, decided
            gc.collect()
            began = time.perf_counter()
            state, judge = _open(directory)
            started = time.perf_counter() - began
        if state.tables.count >= points[len(curve)]:
            stats = state.tables.stats
            curve.append(
                {
                    "anchors": state.tables.count,
                    "rows_per_second": round(rows / seconds),
                    "longest_batch_ms": round(longest * 1000),
                    "ram_mib": own_mib(),
                    "disk_bytes_an_anchor": round(state.store.disk_bytes() / state.tables.count),
                    "hot_anchors": stats.hot_anchors,
                    "cold_anchors": stats.cold_anchors,
                    "runs": stats.runs,
                }
            )
            flushes.end()
            # Counted with the next stretch: it would have been done beside its rows.
            seconds, rows, longest = _calm_down(state), 0, 0.0
            curve[-1]["fresh_rows_per_second"] = fresh.rows_per_second()
            if len(curve) == len(points):
                break
    flushes.end()
    state.close()
    return curve, started


def _flat(curve: list[dict[str, Any]]) -> float:
    """Memory at the end to that of the first point with anchors beyond RAM; 1 before there is one."""
    beyond = [point["ram_mib"] for point in curve if point["cold_anchors"]]
    return round(beyond[-1] / beyond[0], 3) if beyond else 1.0


def _last_to_million(curve: list[dict[str, Any]]) -> float:
    """Speed at the end to that up to a million anchors, or up to the first point before that; each to that of
    a judge that has just begun, of around the stretch."""

    def speed(place: int) -> float:
        around = [point["fresh_rows_per_second"] for point in curve[max(0, place - 1) : place + 1]]
        return float(curve[place]["rows_per_second"] / fmean(around))

    return round(speed(len(curve) - 1) / speed(min(1, len(curve) - 1)), 3)


def _rebuild(directory: Path) -> dict[str, Any]:
    """Deciding a journal against applying what was decided of it."""
    batches = list(_batches(REBUILT_ROWS))
    deciding, log = _decide(directory / "first", batches)
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


def run(anchors: int = 20_000_000) -> dict[str, Any]:
    """The curve, `seconds_to_start`, and the speed of a rebuild beside that of deciding."""
    directory = Path(tempfile.mkdtemp(prefix="neardup-bench-"))
    try:
        with batch_process_tuning():
            curve, started = _grow(directory / "grown", anchors)
            rebuilt = _rebuild(directory)
        return {
            "curve": {f"{point['anchors']:,}": point for point in curve},
            "last_to_million_ratio": _last_to_million(curve),
            "ram_beyond_ratio": _flat(curve),
            "disk_bytes_an_anchor": curve[-1]["disk_bytes_an_anchor"],
            "seconds_to_start": round(started, 2),
            "rebuild": rebuilt,
        }
    finally:
        shutil.rmtree(directory)
