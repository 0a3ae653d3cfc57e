"""A judge with a lifetime, over many times the pages that it remembers:

    python -m tests.bench.lifetime --pages 5e7 --window 1e7 --directory DIRECTORY [--keep FILE.json]

Records are made, decided and applied batch after batch, with turns between them, and flushed beside that, as
a judge does; no Kafka. Three of ten rows are near-duplicates of an earlier one, so of ten pages about two are
carried when they expire. The same judge without a lifetime, grown to `--window` anchors before, says what
the lifetime costs. Each quarter is judged by a process of its own, so that its memory is that of a judge that
has started and judged a quarter, and its start is that of a judge with the state of the quarter before.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import click
import msgspec

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.batch_rows import BatchRows
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.journal import Rows, decode_journal
from stream.messages.verdict_options import VerdictOptions
from stream.offline.planner import parse_memory, parse_pages
from stream.ops.runtime_tuning import batch_process_tuning
from stream.settings import Settings
from tests.bench import report
from tests.bench.bench_growth import Flushes, own_mib
from tests.bench.bench_judge import TRANSACTION
from tests.bench.growth import FIRST
from tests.bench.journal import ROWS
from tests.bench.made_rows import MadeRows
from tests.genesis import genesis_of

LIFETIME: Final = 90 * 86_400
"""Seconds of log time."""
LIVE_A_ROW: Final = 0.92
"""Anchors and carried ones that are live at the end of a lifetime, to the rows judged within it."""
WINDOWED: Final = 10
"""Generations in a window, as with the defaults and 1e7 anchors."""
EPOCH: Final = 1_790_000_000_000
SKETCH_BINS: Final = 64
"""Smallest sketches, so that 1e7 anchors take 3 GB of disk."""
QUARTERS: Final = 4
PARTS: Final = 4
"""Of a quarter."""


class Setup(NamedTuple):
    """What all parts of a run have in common."""

    directory: Path
    window: int
    """Anchors that are remembered."""
    tables_memory: int
    sketch_bins: int


class Part(msgspec.Struct):
    """What was measured of a part of a run."""

    rows: int = 0
    """Judged so far, since the first record."""
    anchors: int = 0
    """That are live."""
    carried: int = 0
    seconds: float = 0.0
    turn_seconds: float = 0.0
    processor_seconds: float = 0.0
    """Of all threads, so also of what flushes, merges and sweeps beside."""
    judged: int = 0
    longest_turn_ms: int = 0
    longest_batch_ms: int = 0
    ram_mib: int = 0
    disk_bytes: int = 0

    @property
    def rows_per_second(self) -> float:
        return self.judged / self.seconds if self.seconds else 0.0


class Windowed:
    """A judge that reads made records, at a pace with which it remembers so many anchors."""

    def __init__(self, setup: Setup, lifetime: int | None) -> None:
        """Goes on where the state is, if there is one."""
        genesis = genesis_of(Scheme(sketch_bins=setup.sketch_bins), VerdictOptions(lifetime=lifetime))
        self._made = MadeRows(genesis.scheme)
        self._millis_a_record = 1000 * LIFETIME * ROWS / (setup.window / LIVE_A_ROW)
        self._limit, self._flushes = BatchRows(TRANSACTION), Flushes()
        self._waiting: list[Entry] = []
        began = time.perf_counter()
        self.state = State(
            setup.directory, genesis, "c",
            memory=setup.tables_memory, generation=setup.window // WINDOWED, cache=Settings().tables_cache,
        )  # fmt: skip
        self.judge = Judge(self.state, genesis)
        self.seconds_to_start = time.perf_counter() - began

    @property
    def next(self) -> int:
        """Offset of the next record."""
        return max(FIRST, self.state.meta.applied)

    def close(self) -> None:
        self._flushes.end()
        self.state.close()

    def _entry(self, offset: int) -> Entry:
        when = EPOCH + int((offset - FIRST) * self._millis_a_record)
        rows = decode_journal(self._made.record(offset - FIRST).encode(), offset)
        assert isinstance(rows, Rows)  # no genesis
        return Entry(offset, when, offset.to_bytes(16, "big"), rows)

    def _batch(self) -> list[Entry]:
        """The next records; those that were not decided come again."""
        wanted = max(1, self._limit.limit // ROWS)
        first = self.next
        waiting = [entry for entry in self._waiting if entry.offset >= first]
        first += len(waiting)
        waiting += [self._entry(offset) for offset in range(first, first + wanted - len(waiting))]
        self._waiting = waiting
        return waiting

    def measure(self, rows: int) -> Part:
        """Judge so many rows, and return what it took."""
        part, processor = Part(), time.process_time()
        while part.judged < rows:
            batch = self._batch()
            began = time.perf_counter()
            if (record := self.judge.decide_turn(batch[0])) is not None:
                assert record.turn is not None
                self.judge.apply_apart(record, 0)
                took = time.perf_counter() - began
                part.carried += len(record.turn.anchors) // 8
                part.turn_seconds += took
                part.longest_turn_ms = max(part.longest_turn_ms, round(1000 * took))
            middle = time.perf_counter()
            decided = self.judge.decide(batch)
            self.judge.apply(decided.entries, decided.record())
            end = time.perf_counter()
            self._limit.note(len(decided.batch), end - middle)
            self._flushes.begin_if_due(self.state)
            part.longest_batch_ms = max(part.longest_batch_ms, round(1000 * (end - middle)))
            part.seconds += end - began
            part.judged += len(decided.batch)
        self._flushes.end()
        part.processor_seconds = time.process_time() - processor
        part.rows = (self.next - FIRST) * ROWS
        part.anchors = self.state.tables.anchors
        part.ram_mib, part.disk_bytes = own_mib(), self.state.store.disk_bytes()
        return part


def process_apart() -> Executor:
    """What calls functions in a process of its own."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def speed_without(setup: Setup) -> float:
    """Rows a second of a judge without a lifetime, over the last tenth of its way to as many anchors as the
    window has."""
    with batch_process_tuning():
        judge = Windowed(setup, None)
        judge.measure(round(0.9 * setup.window / 0.7))
        last = judge.measure(round(0.1 * setup.window / 0.7))
        judge.close()
    _show(last)
    return last.rows_per_second


def parts(setup: Setup, rows: int, count: int) -> tuple[float, list[Part]]:
    """Judge so many rows in some parts. Returns the seconds that the state took to open, and the parts."""
    with batch_process_tuning():
        judge, measured = Windowed(setup, LIFETIME), list[Part]()
        for _ in range(count):
            measured.append(judge.measure(rows // count))
            _show(measured[-1])
        judge.close()
    return judge.seconds_to_start, measured


def _show(part: Part) -> None:
    click.echo(
        f"{part.rows:,} pages, {part.rows_per_second:,.0f} rows/s, "
        f"{1e6 * part.processor_seconds / part.judged:.1f} us of processor a row, {part.anchors:,} anchors, "
        f"{part.carried / part.judged:.2f} carried a page, turns {part.turn_seconds / part.seconds:.3f} of "
        f"the time, longest turn {part.longest_turn_ms} ms, longest batch {part.longest_batch_ms} ms, "
        f"{part.ram_mib} MiB, {part.disk_bytes / 1e9:.2f} GB",
        err=True,
    )


def measure(setup: Setup, pages: int, executor: Callable[[], Executor] = process_apart) -> dict[str, Any]:
    """Judge so many pages through a window, in a directory that is emptied first. Returns all figures."""
    starts, quarters = list[float](), list[list[Part]]()
    shutil.rmtree(setup.directory, ignore_errors=True)
    with executor() as apart:
        without = apart.submit(speed_without, setup).result()
    shutil.rmtree(setup.directory)
    for rows, count in [*[(pages // QUARTERS, PARTS)] * QUARTERS, (0, 0)]:
        with executor() as apart:
            seconds, measured = apart.submit(parts, setup, rows, count).result()
        starts.append(seconds)
        quarters.append(measured)
    return summary(quarters[:-1], starts[1:], without)


def summary(quarters: list[list[Part]], starts: list[float], without: float) -> dict[str, Any]:
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


@click.command("lifetime")
@click.option("--pages", required=True, help="Pages to judge, such as 5e7.")
@click.option("--window", required=True, help="Anchors that are remembered, such as 1e7.")
@click.option("--directory", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--tables-memory", default="1GiB", show_default=True)
@click.option("--sketch-bins", type=int, default=SKETCH_BINS, show_default=True, help="Fewer bins save disk.")
@click.option(
    "--keep", type=click.Path(path_type=Path, dir_okay=False),
    help="Store results in this JSON file, and as a page beside it.",
)  # fmt: skip
def command(
    pages: str, window: str, directory: Path, tables_memory: str, sketch_bins: int, keep: Path | None
) -> None:
    """Judge many pages through a window. Prints figures as JSON; progress goes to stderr."""
    directory.mkdir(parents=True, exist_ok=True)
    setup = Setup(
        directory / "state",
        parse_pages(window, "window"),
        parse_memory(tables_memory, "tables-memory"),
        sketch_bins,
    )
    figures = measure(setup, parse_pages(pages, "pages"))
    if keep is not None:
        report.keep(keep, "lifetime", figures)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    command()
