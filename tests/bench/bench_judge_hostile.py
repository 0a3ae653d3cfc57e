"""The judge's core on journals made to slow it down, beside an ordinary one.

    python -m tests.bench.bench_judge_hostile [rows [case ...]]

No Kafka here: records are decided, written out and applied batch after batch, as large as a transaction under
load. A machine's speed wanders: the ordinary journal is judged before and after each hostile one, and what is
compared are speeds of the same moment.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
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
from tests.bench.journal import ROWS
from tests.genesis import genesis_of

TRANSACTION: Final = 32_768
PATIENCE: Final = 60.0
"""Seconds after which a case is measured by the batches it got through."""


class Speed:
    """Of one journal: rows, the seconds they took, and the longest that one batch did."""

    def __init__(self, entries: list[Entry]) -> None:
        self.rows, self.seconds, self.longest = 0, 0.0, 0.0
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
            batch = entries[first : first + TRANSACTION // ROWS]
            began = time.perf_counter()
            decided = judge.decide(batch, Effort(MOST))
            decided.json()
            judge.apply(decided.entries, decided.record())
            seconds = time.perf_counter() - began
            first += len(decided.entries)
            self.rows += len(decided.batch)
            self.seconds += seconds
            self.longest = max(self.longest, seconds)

    @property
    def rows_per_second(self) -> float:
        """Rows judged and applied."""
        return self.rows / self.seconds


def run(rows: int = 8192, cases: tuple[str, ...] = tuple(CASES)) -> dict[str, Any]:
    """`worst_ratio` is the slowest case's speed to that of ordinary pages, both of one process."""
    found: dict[str, Any] = {}
    with batch_process_tuning():
        usual = ordinary(rows)
        Speed(usual)  # compiles
        before = Speed(usual).rows_per_second
        for name in cases:
            hostile = Speed(CASES[name](rows))
            after = Speed(usual).rows_per_second
            found[name] = {
                "rows_per_second": round(hostile.rows_per_second),
                "ordinary_per_second": round((before + after) / 2),
                "ratio": round(2 * hostile.rows_per_second / (before + after), 3),
                "longest_batch_seconds": round(hostile.longest, 2),
            }
            before = after
            sys.stderr.write(f"{name}: {found[name]}\n")
    worst = min(found, key=lambda name: float(found[name]["ratio"]))
    return {
        "rows": rows,
        "worst_case": worst.replace("_", " "),
        "worst_ratio": found[worst]["ratio"],
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        **found,
    }


if __name__ == "__main__":
    asked = tuple(sys.argv[2:]) or tuple(CASES)
    sys.stdout.write(
        json.dumps(run(int(sys.argv[1]), asked) if len(sys.argv) > 1 else run(), indent=2) + "\n"
    )
