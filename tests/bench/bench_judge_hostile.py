"""The judge's core on journals made to slow it down, beside an ordinary one.

No Kafka here: records are decided, written out and applied batch after batch. Each case is measured twice: in
one batch of so many rows, whose pages meet each other, and in the `LATER` batches of as many rows that follow
one, whose pages meet stored anchors in full buckets. A machine's speed wanders: the ordinary journal is
judged before and after each hostile one, and what is compared are speeds of the same moment.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.decision.decide import MOST, Effort
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.verdict_options import VerdictOptions
from stream.ops.runtime_tuning import batch_process_tuning
from tests.bench.hostile import CASES, ordinary
from tests.bench.made_rows import ROWS
from tests.genesis import genesis_of

LATER: Final = 2
"""Batches that are measured after the first one."""
PATIENCE: Final = 60.0
"""Seconds after which a case is measured by the batches it got through."""


class Speed:
    """Of one journal, from the record `measured` on: rows, the seconds they took, and the longest that one
    batch did. A batch has so many rows."""

    def __init__(self, entries: list[Entry], batch: int, measured: int = 0) -> None:
        self.rows, self.seconds, self.longest = 0, 0.0, 0.0
        self._records, self._measured = max(1, batch // ROWS), measured
        with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
            scheme, options = Scheme(), VerdictOptions()
            genesis = genesis_of(scheme, options)
            state = State(
                Path(directory) / "state", genesis, "c", memory=1 << 30, generation=1_000_000, cache=64 << 20
            )
            try:
                self._judge(Judge(state, genesis), entries)
            finally:
                state.close()

    def _judge(self, judge: Judge, entries: list[Entry]) -> None:
        first = 0
        while first < len(entries) and self.seconds < PATIENCE:
            batch = entries[first : first + self._records]
            began = time.perf_counter()
            decided = judge.decide(batch, Effort(MOST))
            decided.json()
            judge.apply(decided.entries, decided.record())
            seconds = time.perf_counter() - began
            first += len(decided.entries)
            if first <= self._measured:
                continue
            self.rows += len(decided.batch)
            self.seconds += seconds
            self.longest = max(self.longest, seconds)

    @property
    def rows_per_second(self) -> float:
        """Rows judged and applied."""
        return self.rows / self.seconds


class _Beside:
    """Measures journals beside the ordinary one, in a batch of so many rows or in those that follow it."""

    def __init__(self, rows: int, *, later: bool) -> None:
        self._rows, self._total = rows, rows * (1 + LATER) if later else rows
        self._measured = rows // ROWS if later else 0
        self._usual = ordinary(self._total)
        self._speed(self._usual)  # compiles
        self._before = self._speed(self._usual).rows_per_second

    def _speed(self, entries: list[Entry]) -> Speed:
        return Speed(entries, self._rows, self._measured)

    def measure(self, made: Callable[[int], list[Entry]]) -> dict[str, Any]:
        """Measure a case."""
        hostile, before = self._speed(made(self._total)), self._before
        self._before = self._speed(self._usual).rows_per_second
        usual = (before + self._before) / 2
        return {
            "rows_per_second": round(hostile.rows_per_second),
            "ordinary_per_second": round(usual),
            "ratio": round(hostile.rows_per_second / usual, 3),
            "longest_batch_seconds": round(hostile.longest, 2),
        }


def run(rows: int = 8192, cases: tuple[str, ...] = tuple(CASES)) -> dict[str, Any]:
    """`worst_ratio` is the slowest case's speed to that of ordinary pages, both of one process, in one batch;
    `worst_later_ratio` is that in later batches."""
    found: dict[str, Any] = {}
    with batch_process_tuning():
        one, later = _Beside(rows, later=False), _Beside(rows, later=True)
        for name in cases:
            in_later = later.measure(CASES[name])
            found[name] = {
                **one.measure(CASES[name]),
                **{f"later_{of}": value for of, value in in_later.items()},
            }
            sys.stderr.write(f"{name}: {found[name]}\n")
    worst, worst_later = (
        min(found, key=lambda name: float(found[name][of])) for of in ("ratio", "later_ratio")
    )
    return {
        "rows": rows,
        "worst_case": worst.replace("_", " "),
        "worst_ratio": found[worst]["ratio"],
        "worst_later_case": worst_later.replace("_", " "),
        "worst_later_ratio": found[worst_later]["later_ratio"],
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        **found,
    }
