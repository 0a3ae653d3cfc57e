"""The judge's core up to a large number of anchors, resumable:

    python -m tests.bench.growth --anchors 1e8 --directory DIRECTORY [--tables-memory 8GiB] [--strict]

DIRECTORY keeps the state and what was measured, `slices.jsonl`. A run that was ended goes on where its state
is; a larger `--anchors` continues a finished one. No Kafka: records are made, decided and applied batch after
batch, and flushed beside that, as a judge does. Rates count what deciding and applying take. Planted copies
are decided, but not applied.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import msgspec
import numpy as np

from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.batch_rows import BatchRows
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.messages.journal import Genesis, decode_journal
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.offline.planner import parse_memory, parse_pages
from stream.ops.runtime_tuning import batch_process_tuning
from stream.settings import Settings
from tests.bench.bench_growth import Flushes, own_mib
from tests.bench.bench_judge import TRANSACTION
from tests.bench.journal import ROWS
from tests.bench.made_rows import MadeRows, is_new
from tests.genesis import genesis_of

FIRST: Final = 1
"""Offset of the first record, after the genesis."""
COPIES: Final = 32 * ROWS
"""Planted copies whose recall is measured."""
RECALLS: Final = (1_000_000, 10_000_000)
"""Anchors at which recall is measured, as well as at the end."""
POINTS: Final = tuple(million * 1_000_000 for million in (1, 2, 5, 10, 20, 50))
"""Anchors at which the rate is listed."""
MARGIN: Final = 3
"""Slices on each side that a slice is compared with."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all parts of a run have in common."""

    strict: bool
    tables_memory: int
    generation: int
    sketch_bins: int
    slice: int
    """Anchors a slice."""

    def genesis(self) -> Genesis:
        options = VerdictOptions.paper() if self.strict else VerdictOptions()
        return genesis_of(Scheme(sketch_bins=self.sketch_bins), options)

    def open(self, directory: Path) -> tuple[State, Judge]:
        genesis, cache = self.genesis(), Settings().tables_cache
        state = State(
            directory / "state", genesis, "c",
            memory=self.tables_memory, generation=self.generation, cache=cache,
        )  # fmt: skip
        return state, Judge(state, genesis)


class Slice(msgspec.Struct):
    """What was measured of a stretch of the run."""

    end: int
    """Offset of the record after it."""
    anchors: int = 0
    """In all, at its end."""
    rows: int = 0
    seconds: float = 0.0
    longest_batch_ms: int = 0
    longest_decide_ms: int = 0
    longest_apply_ms: int = 0
    groups_a_row: float = 0.0
    """Groups read from RocksDB a row, those of near-duplicates among them."""
    found_a_row: float = 0.0
    """Of these, groups that exist."""
    ram_mib: int = 0
    disk_bytes: int = 0
    hot_anchors: int = 0
    cold_anchors: int = 0
    runs: int = 0
    recall: float | None = None
    """Share of planted copies that are duplicates."""
    stranger_groups: float | None = None
    """Groups read for a planted page that is like none."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


class Growth:
    """A run in a directory."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        self.directory, self.setup = directory, setup
        directory.mkdir(parents=True, exist_ok=True)
        kept = directory / "setup.json"
        if kept.exists():
            if (before := json.loads(kept.read_text())) != asdict(setup):
                raise SettingsError(f"--directory: {directory} was begun with {before}")
        else:
            kept.write_text(json.dumps(asdict(setup)))
        began = time.perf_counter()
        self.state, self.judge = setup.open(directory)
        self.seconds_to_start = time.perf_counter() - began
        self.made = MadeRows(setup.genesis().scheme)
        self._batch_rows = BatchRows(TRANSACTION)
        self._path = directory / "slices.jsonl"
        self.slices = self._read_slices()

    @property
    def next(self) -> int:
        """Offset of the next record."""
        return max(FIRST, self.state.meta.applied)

    def _read_slices(self) -> list[Slice]:
        """The slices that the state still has; what a crash lost is measured again."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        slices = []
        for line in lines:
            try:
                each = msgspec.json.decode(line, type=Slice)
            except msgspec.DecodeError:  # half a line
                break
            if each.end > self.next:
                break
            slices.append(each)
        self._path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in slices))
        return slices

    def _entries(self, records: list[Any], first: int) -> list[Entry]:
        entries = []
        for offset, record in enumerate(records, first):
            value = record.encode()
            entries.append(Entry(offset, 1000, offset.to_bytes(16, "big"), decode_journal(value, offset)))
        return entries

    def _batches(self) -> Iterator[list[Entry]]:
        first = self.next
        while True:
            size = max(1, self._batch_rows.limit // ROWS)
            records = [self.made.record(offset - FIRST) for offset in range(first, first + size)]
            yield self._entries(records, first)
            first += size

    def grow(self, anchors: int) -> Iterator[Slice]:
        """Judge rows until there are so many anchors. Yields slices as they are measured."""
        tables, flushes = self.state.tables, Flushes()
        now, before = Slice(self.next), tables.stats
        due = min(anchors, (tables.count // self.setup.slice + 1) * self.setup.slice)
        for batch in self._batches() if tables.count < anchors else ():
            began = time.perf_counter()
            decided = self.judge.decide(batch)
            middle = time.perf_counter()
            self.judge.apply(batch, decided.record())
            took = time.perf_counter() - began
            self._batch_rows.note(len(decided.batch), took)
            flushes.begin_if_due(self.state)
            now.longest_decide_ms = max(now.longest_decide_ms, round(1000 * (middle - began)))
            now.longest_apply_ms = max(now.longest_apply_ms, round(1000 * (took - (middle - began))))
            now.longest_batch_ms = max(now.longest_batch_ms, round(1000 * took))
            now.seconds += took
            now.rows += len(decided.batch)
            if tables.count >= due:
                stats = tables.stats
                now.end, now.anchors = self.next, tables.count
                now.seconds = round(now.seconds, 3)
                now.groups_a_row = round((stats.rocks_probes - before.rocks_probes) / now.rows, 3)
                now.found_a_row = round((stats.rocks_hits - before.rocks_hits) / now.rows, 3)
                now.ram_mib, now.disk_bytes = own_mib(), self.state.store.disk_bytes()
                now.hot_anchors, now.cold_anchors = stats.hot_anchors, stats.cold_anchors
                now.runs = stats.runs
                last = tables.count >= anchors
                if last or any(tables.count - self.setup.slice < each <= tables.count for each in RECALLS):
                    flushes.end()
                    now.recall, now.stranger_groups = self._recall()
                flushes.end()
                self.state.flush()
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(now) + b"\n")
                self.slices.append(now)
                yield now
                now, before = Slice(self.next), tables.stats
                due = min(anchors, due + self.setup.slice)
                if last:
                    break
        flushes.end()

    def _recall(self) -> tuple[float, float]:
        """The share of planted copies of rows from all of the run that are duplicates; and groups read for
        a page that is like none."""
        rows = (self.next - FIRST) * ROWS
        originals = np.linspace(0, rows - 1, 2 * COPIES).astype(np.int64)
        originals = originals[is_new(originals)][:COPIES]
        entries = self._entries(self.made.copies(originals, self.next - FIRST), self.next)
        verdicts = self.judge.decide(entries).verdicts.columns.verdict
        strangers = MadeRows(self.made.scheme, self.made.seed + 10)
        others = [strangers.record(self.next - FIRST + place) for place in range(8)]
        tables = self.state.tables
        before = tables.stats.rocks_probes
        self.judge.decide(self._entries(others, self.next))
        read = tables.stats.rocks_probes - before
        return round(float(np.mean(verdicts == Verdict.DUPLICATE)), 5), round(read / (8 * ROWS), 3)

    def start_again(self) -> None:
        """Close the state and measure how long it takes to open."""
        self.state.close()
        began = time.perf_counter()
        self.state, self.judge = self.setup.open(self.directory)
        self.seconds_to_start = time.perf_counter() - began

    def close(self) -> None:
        self.state.close()


def dips(slices: list[Slice]) -> list[tuple[int, float]]:
    """Anchors and rate of each slice, as a multiple of the median rate of the slices beside it, least
    first."""
    rates = [each.rows_per_second for each in slices]
    compared = []
    for place, each in enumerate(slices):
        beside = rates[max(0, place - MARGIN) : place] + rates[place + 1 : place + 1 + MARGIN]
        if beside:
            compared.append((each.anchors, round(rates[place] / median(beside), 3)))
    return sorted(compared, key=lambda dip: dip[1])


def summary(growth: Growth) -> dict[str, Any]:
    """All figures of a run."""
    slices, last = growth.slices, growth.slices[-1]

    def rate(anchors: int) -> int:
        near = max(anchors / 10, growth.setup.slice)
        around = [each for each in slices if abs(each.anchors - anchors) <= near]
        seconds = sum(each.seconds for each in around)
        return round(sum(each.rows for each in around) / seconds) if seconds else 0

    points = [point for point in POINTS if point < last.anchors]
    points.append(last.anchors)
    return {
        **asdict(growth.setup),
        "anchors": last.anchors,
        "rows_per_second": {f"{n:,}": rate(n) for n in points},
        "last_to_million": round(rate(last.anchors) / (rate(1_000_000) or 1), 3),
        "longest_batch_ms": max(each.longest_batch_ms for each in slices),
        "dips": dips(slices)[:5],
        "recall": {f"{each.anchors:,}": each.recall for each in slices if each.recall is not None},
        "stranger_groups": {
            f"{each.anchors:,}": each.stranger_groups for each in slices if each.recall is not None
        },
        "groups_a_row": last.groups_a_row,
        "ram_mib": max(each.ram_mib for each in slices),
        "disk_bytes_an_anchor": round(last.disk_bytes / last.anchors),
        "seconds_judging": round(sum(each.seconds for each in slices)),
        "seconds_to_start": round(growth.seconds_to_start, 2),
    }


@click.command("growth")
@click.option("--anchors", required=True, help="Number of anchors to grow to, such as 1e8.")
@click.option(
    "--directory", required=True, type=click.Path(path_type=Path, file_okay=False),
    help="Keeps the state and the figures. At 1e8 anchors it takes 70 GB, or 35 GB with --sketch-bins 64.",
)  # fmt: skip
@click.option("--tables-memory", default="1GiB", show_default=True, help="RAM of the tables.")
@click.option("--generation", type=int, default=1_000_000, show_default=True, help="As tables_generation.")
@click.option("--sketch-bins", type=int, default=1920, show_default=True, help="Fewer bins save disk.")
@click.option("--slice", "slice_", type=int, default=500_000, show_default=True, help="Anchors a slice.")
@click.option("--strict", is_flag=True, help="The paper's tables: 64 bits, distance 3, every pair found.")
def command(
    anchors: str,
    directory: Path,
    tables_memory: str,
    generation: int,
    sketch_bins: int,
    slice_: int,
    strict: bool,
) -> None:
    """Grow a judge to many anchors. Prints the figures as JSON; progress goes to stderr."""
    setup = Setup(strict, parse_memory(tables_memory, "tables-memory"), generation, sketch_bins, slice_)
    until = parse_pages(anchors, "anchors")
    with batch_process_tuning():
        growth = Growth(directory, setup)
        begun, first = time.monotonic(), growth.state.tables.count
        for each in growth.grow(until):
            spent = time.monotonic() - begun
            left = max(0.0, spent / max(1, each.anchors - first) * (until - each.anchors))
            recall = ""
            if each.recall is not None:
                recall = f", recall {each.recall:.4f}, {each.stranger_groups} groups a stranger"
            click.echo(
                f"{each.anchors:,} of {until:,} anchors, {each.rows_per_second:,.0f} rows/s, longest batch "
                f"{each.longest_batch_ms} ms, {each.groups_a_row} groups a row, {each.runs} runs, "
                f"{each.ram_mib} MiB{recall}; {left / 60:.0f} min left",
                err=True,
            )  # fmt: skip
        growth.start_again()
        sys.stdout.write(json.dumps(summary(growth), indent=2) + "\n")
        growth.close()


if __name__ == "__main__":
    command()
