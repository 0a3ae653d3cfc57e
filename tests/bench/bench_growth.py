"""The judge's core as its tables grow: speed, memory and disk; how fast it starts and is rebuilt.

A machine may be twice as fast in one minute as in another: at each point of the curve a judge that has just
begun decides the same few rows, and speeds are compared as multiples of its own.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from stream.errors import NeardupError
from stream.judge.state.state import State
from stream.messages.verdict_options import VerdictOptions
from stream.ops.runtime_tuning import batch_process_tuning
from tests.bench.made_judge import MadeJudge
from tests.bench.made_rows import NEAR

POINT = 1_000_000
"""Anchors between two points of the curve."""
REBUILT_ROWS = 300_000
FRESH_ROWS = 200_000
"""What a judge that has just begun decides at each point of the curve."""
CALM_SECONDS = 0.5
"""This long less than a tenth of a core, and nothing is being compacted any more."""
PATIENCE = 60.0


def _opened(directory: Path) -> MadeJudge:
    return MadeJudge(directory, VerdictOptions())


def _fresh(directory: Path) -> float:
    """Rows a second of a judge that has just begun: how fast the machine is at a moment."""
    judge = _opened(directory)
    speed = judge.measure(FRESH_ROWS).rows_per_second
    judge.close()
    shutil.rmtree(directory)
    return speed


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
    """The curve, and the seconds that a start took at its end."""
    judge, fresh, curve = _opened(directory / "grown"), directory / "fresh", list[dict[str, Any]]()
    _fresh(fresh)  # compiles
    while judge.state.tables.count < anchors:
        part = judge.measure(round(min(POINT, anchors - judge.state.tables.count) / (1 - NEAR)))
        part.seconds += _calm_down(judge.state)  # it would have been done beside the rows that follow
        curve.append(
            {
                "anchors": part.anchors,
                "rows_per_second": round(part.rows_per_second),
                "longest_batch_ms": part.longest_batch_ms,
                "ram_mib": part.ram_mib,
                "disk_bytes_an_anchor": round(part.disk_bytes / part.anchors),
                "hot_anchors": part.hot_anchors,
                "cold_anchors": part.cold_anchors,
                "runs": part.runs,
                "fresh_rows_per_second": round(_fresh(fresh)),
            }
        )
    judge.close()
    again = _opened(directory / "grown")
    again.close()
    return curve, again.seconds_to_start


def _flat(curve: list[dict[str, Any]]) -> float:
    """Memory at the end to that of the first point with anchors beyond RAM; 1 before there is one."""
    beyond = [point["ram_mib"] for point in curve if point["cold_anchors"]]
    return round(beyond[-1] / beyond[0], 3) if beyond else 1.0


def _last_to_million(curve: list[dict[str, Any]]) -> float:
    """Speed at the end to that up to the first point, a million anchors; each to that of a judge that has
    just begun, of around the stretch."""

    def speed(place: int) -> float:
        around = [point["fresh_rows_per_second"] for point in curve[max(0, place - 1) : place + 1]]
        return float(curve[place]["rows_per_second"] / fmean(around))

    return round(speed(len(curve) - 1) / speed(0), 3)


def _rebuild(directory: Path) -> dict[str, Any]:
    """Deciding a journal, and applying what was decided of it to another state, batch by batch in turn."""
    first, second = (_opened(directory / name) for name in ("first", "second"))
    rows, deciding, applying = 0, 0.0, 0.0
    while rows < REBUILT_ROWS:
        batch, began = first.batch(), time.perf_counter()
        decided = first.judge.decide(batch)
        record = decided.record()
        first.judge.apply(decided.entries, record)
        middle = time.perf_counter()
        second.judge.apply(decided.entries, record)
        deciding, applying = deciding + middle - began, applying + time.perf_counter() - middle
        rows += len(decided.batch)
    for each in (first, second):
        each.close()
    return {
        "rows": rows,
        "decided_per_second": round(rows / deciding),
        "rebuilt_per_second": round(rows / applying),
        "ratio": round(deciding / applying, 2),
    }


def run(anchors: int = 20_000_000) -> dict[str, Any]:
    """The curve, `seconds_to_start`, and the speed of a rebuild beside that of deciding."""
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory, batch_process_tuning():
        curve, started = _grow(Path(directory), anchors)
        rebuilt = _rebuild(Path(directory))
    return {
        "curve": {f"{point['anchors']:,}": point for point in curve},
        "last_to_million_ratio": _last_to_million(curve),
        "ram_beyond_ratio": _flat(curve),
        "disk_bytes_an_anchor": curve[-1]["disk_bytes_an_anchor"],
        "seconds_to_start": round(started, 2),
        "rebuild": rebuilt,
    }
