"""A judge whose pages expire: speed, memory, disk and starts by quarters of a long run.

Three of ten rows are near-duplicates of an earlier one, so of ten pages about two are carried when they
expire. The same judge without a lifetime, grown to as many anchors as the window has before, says what the
lifetime costs. Each quarter is judged by a process of its own, so that its memory is that of a judge that has
started and judged a quarter, and its start is that of a judge with the state of the quarter before.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from stream.ops.runtime_tuning import batch_process_tuning
from tests.bench.made_judge import MadeJudge, Part
from tests.bench.made_rows import NEAR, ROWS

LIFETIME: Final = 90 * 86_400
"""Seconds of log time."""
LIVE_A_ROW: Final = 0.92
"""Anchors and carried ones that are live at the end of a lifetime, to the rows judged within it."""
WINDOWED: Final = 10
"""Generations in a window, as with the defaults and 1e7 anchors."""
SCHEME: Final = Scheme(sketch_bins=64)
"""Smallest sketches, so that 1e7 anchors take 3 GB of disk."""
QUARTERS: Final = 4
PARTS: Final = 4
"""Of a quarter."""


class Setup(NamedTuple):
    """What all parts of a run have in common."""

    directory: Path
    window: int
    """Anchors that are remembered."""

    def judge(self, lifetime: int | None) -> MadeJudge:
        """A judge that reads records at a pace with which it remembers so many anchors."""
        return MadeJudge(
            self.directory,
            VerdictOptions(lifetime=lifetime),
            scheme=SCHEME,
            generation=self.window // WINDOWED,
            millis_a_record=1000 * LIFETIME * ROWS / (self.window / LIVE_A_ROW),
        )


def process_apart() -> Executor:
    """What calls functions in a process of its own."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def speed_without(setup: Setup) -> float:
    """Rows a second of a judge without a lifetime, over the last tenth of its way to as many anchors as the
    window has."""
    with batch_process_tuning():
        judge = setup.judge(None)
        judge.measure(round(0.9 * setup.window / (1 - NEAR)))
        last = judge.measure(round(0.1 * setup.window / (1 - NEAR)))
        judge.close()
    return last.rows_per_second


def parts(setup: Setup, rows: int, count: int) -> tuple[float, list[Part]]:
    """Judge so many rows in some parts. Returns the seconds that the state took to open, and the parts."""
    with batch_process_tuning():
        judge = setup.judge(LIFETIME)
        measured = [judge.measure(rows // count) for _ in range(count)]
        judge.close()
    return judge.seconds_to_start, measured


def run(
    pages: int = 50_000_000, window: int = 10_000_000, executor: Callable[[], Executor] = process_apart
) -> dict[str, Any]:
    """Figures of a judge that judges so many pages through a window of so many anchors."""
    starts, quarters = list[float](), list[list[Part]]()
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as folder:
        setup = Setup(Path(folder) / "state", window)
        with executor() as apart:
            without = apart.submit(speed_without, setup).result()
        shutil.rmtree(setup.directory)
        for rows, count in [*[(pages // QUARTERS, PARTS)] * QUARTERS, (0, 0)]:
            with executor() as apart:
                seconds, measured = apart.submit(parts, setup, rows, count).result()
            starts.append(seconds)
            quarters.append(measured)
    return _summary(quarters[:-1], starts[1:], without)


def _summary(quarters: list[list[Part]], starts: list[float], without: float) -> dict[str, Any]:
    """All figures of a run, by quarter too, and how far apart the quarters of its last half are, and their
    parts. `starts` are the seconds that the state took to open after each quarter."""
    rows = [_row(quarter, start) for quarter, start in zip(quarters, starts, strict=True)]
    last = quarters[len(quarters) // 2 :]
    half = [part for quarter in last for part in quarter]

    # Of figures as measured: those of a small run are zero once they are rounded for the table.
    def spread(values: Iterable[float]) -> float:
        found = list(values)
        return 0.0 if max(found) == min(found) else round(max(found) / min(found) - 1, 3)

    return {
        "rows_per_second_without": round(without),
        "rows_per_second": round(_rate(half)),
        "to_that_without_ratio": round(_rate(half) / without, 3),
        "carried_a_page": round(sum(p.carried for p in half) / sum(p.judged for p in half), 3),
        "longest_turn_ms": max(part.longest_turn_ms for quarter in quarters for part in quarter),
        "spread_of_last_half": {
            "rows_per_second": spread(map(_rate, last)),
            "ram_mib": spread(max(part.ram_mib for part in quarter) for quarter in last),
            "disk_gb": spread(map(_disk_bytes, last)),
            "seconds_to_start": spread(starts[len(starts) // 2 :]),
        },
        "spread_of_its_parts": {
            "rows_per_second": spread(part.rows_per_second for part in half),
            "ram_mib": spread(part.ram_mib for part in half),
            "disk_gb": spread(part.disk_bytes for part in half),
        },
        "quarters": {f"{quarter[-1].rows:,} pages": row for quarter, row in zip(quarters, rows, strict=True)},
    }


def _rate(measured: list[Part]) -> float:
    return sum(part.judged for part in measured) / sum(part.seconds for part in measured)


def _disk_bytes(quarter: list[Part]) -> float:
    return fmean(part.disk_bytes for part in quarter)


def _row(quarter: list[Part], start: float) -> dict[str, Any]:
    judged, seconds = sum(part.judged for part in quarter), sum(part.seconds for part in quarter)
    return {
        "anchors": quarter[-1].anchors,
        "carried_a_page": round(sum(part.carried for part in quarter) / judged, 3),
        "rows_per_second": round(_rate(quarter)),
        "turns_of_the_time": round(sum(part.turn_seconds for part in quarter) / seconds, 3),
        "longest_turn_ms": max(part.longest_turn_ms for part in quarter),
        "longest_batch_ms": max(part.longest_batch_ms for part in quarter),
        "disk_gb": round(_disk_bytes(quarter) / 1e9, 2),
        "ram_mib": max(part.ram_mib for part in quarter),
        "seconds_to_start": round(start, 2),
    }
