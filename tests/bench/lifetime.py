"""A judge with a lifetime, over many times the pages that it remembers:

    python -m tests.bench.lifetime --pages 5e7 --window 1e7 --directory DIRECTORY

Records are made, decided and applied batch after batch, with turns between them, and flushed beside that, as
a judge does; no Kafka. A quarter of what it judges names an earlier page, so of ten pages about two are
carried when they expire. The same judge without a lifetime, grown to `--window` anchors before, says what
the lifetime costs.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.batch_rows import BatchRows
from stream.judge.judge import Judge
from stream.judge.state import State
from stream.messages.journal import Rows, decode_journal
from stream.messages.verdict_options import VerdictOptions
from stream.offline.planner import parse_memory, parse_pages
from stream.ops.runtime_tuning import batch_process_tuning
from stream.settings import Settings
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


class Part(msgspec.Struct):
    """What was measured of a sixteenth of the run."""

    rows: int = 0
    """Judged so far."""
    anchors: int = 0
    """That are live."""
    carried: int = 0
    seconds: float = 0.0
    turn_seconds: float = 0.0
    judged: int = 0
    longest_turn_ms: int = 0
    longest_batch_ms: int = 0
    ram_mib: int = 0
    disk_bytes: int = 0
    seconds_to_start: float = 0.0
    """0 where the state was not opened anew."""

    @property
    def rows_per_second(self) -> float:
        return self.judged / self.seconds if self.seconds else 0.0


class Windowed:
    """A judge that reads made records, at a pace with which it remembers so many anchors."""

    def __init__(self, directory: Path, lifetime: int | None, window: int, memory: int, bins: int) -> None:
        self._directory, self._memory, self._generation = directory, memory, window // WINDOWED

        self._genesis = genesis_of(Scheme(sketch_bins=bins), VerdictOptions(lifetime=lifetime))
        self._made = MadeRows(self._genesis.scheme)
        self._millis_a_record = 1000 * LIFETIME * ROWS / (window / LIVE_A_ROW)
        self._limit, self._flushes = BatchRows(TRANSACTION), Flushes()
        self._waiting: list[Entry] = []
        self.seconds_to_start = 0.0
        self.open()

    def open(self) -> None:
        began = time.perf_counter()
        self.state = State(
            self._directory, self._genesis, "c",
            memory=self._memory, generation=self._generation, cache=Settings().tables_cache,
        )  # fmt: skip
        self.judge = Judge(self.state, self._genesis)
        self.seconds_to_start = time.perf_counter() - began

    def start_again(self) -> None:
        self._flushes.end()
        self.state.close()
        self.open()

    def _entry(self, offset: int) -> Entry:
        when = EPOCH + int((offset - FIRST) * self._millis_a_record)
        rows = decode_journal(self._made.record(offset - FIRST).encode(), offset)
        assert isinstance(rows, Rows)  # no genesis
        return Entry(offset, when, offset.to_bytes(16, "big"), rows)

    def _batch(self) -> list[Entry]:
        """The next records; those that were not decided come again."""
        wanted = max(1, self._limit.limit // ROWS)
        first = max(FIRST, self.state.meta.applied)
        waiting = [entry for entry in self._waiting if entry.offset >= first]
        first += len(waiting)
        waiting += [self._entry(offset) for offset in range(first, first + wanted - len(waiting))]
        self._waiting = waiting
        return waiting

    def judged(self, rows: int, part: Part) -> None:
        """Judge so many rows."""
        until = part.rows + rows
        while part.rows < until:
            batch = self._batch()
            began = time.perf_counter()
            if (record := self.judge.decide_turn(batch[0])) is not None:
                assert record.turn is not None
                self.judge.apply_turn(record, record.turn, 0)
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
            part.rows += len(decided.batch)

    def measure(self, rows: int, before: Part) -> Part:
        """Judge so many rows, and return what it took."""
        part = Part(rows=before.rows)
        self.judged(rows, part)
        self._flushes.end()
        part.anchors = self.state.tables.count - self.state.tables.first
        part.ram_mib, part.disk_bytes = own_mib(), self.state.store.disk_bytes()
        return part


def grown(directory: Path, window: int, memory: int, bins: int) -> float:
    """Rows a second of a judge without a lifetime, over the last tenth of its way to so many anchors."""
    judge = Windowed(directory, None, window, memory, bins)
    part = Part()
    judge.judged(round(0.9 * window / 0.7), part)
    last = Part(rows=part.rows)
    judge.judged(round(0.1 * window / 0.7), last)
    judge.start_again()
    judge.state.close()
    shutil.rmtree(directory)
    return last.rows_per_second


def parts(judge: Windowed, pages: int, count: int) -> Iterator[Part]:
    """Measure so many parts. The state is opened anew after half of them and at the end: memory of a process
    that has opened one twice is not that of a judge, but comparable with itself."""
    part = Part()
    for place in range(1, count + 1):
        part = judge.measure(pages // count, part)
        if place in (count // 2, count):
            judge.start_again()
            part.seconds_to_start = round(judge.seconds_to_start, 2)
        yield part


@click.command("lifetime")
@click.option("--pages", required=True, help="Pages to judge, such as 5e7.")
@click.option("--window", required=True, help="Anchors that are remembered, such as 1e7.")
@click.option("--directory", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--tables-memory", default="1GiB", show_default=True)
@click.option("--sketch-bins", type=int, default=64, show_default=True)
@click.option("--parts", "count", type=int, default=16, show_default=True)
def command(
    pages: str, window: str, directory: Path, tables_memory: str, sketch_bins: int, count: int
) -> None:
    """Judge many pages through a window. Prints figures as JSON; progress goes to stderr."""
    memory, size, total = parse_memory(tables_memory), parse_pages(window), parse_pages(pages)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with batch_process_tuning():
        without = grown(directory / "without", size, memory, sketch_bins)
        click.echo(f"without a lifetime, at {size:,} anchors: {without:,.0f} rows/s", err=True)
        judge = Windowed(directory / "with", LIFETIME, size, memory, sketch_bins)
        done: list[Part] = []
        for part in parts(judge, total, count):
            done.append(part)
            click.echo(
                f"{part.rows:,} of {total:,} pages, {part.rows_per_second:,.0f} rows/s, "
                f"{part.anchors:,} anchors, {part.carried / part.judged:.2f} carried a page, longest turn "
                f"{part.longest_turn_ms} ms, longest batch {part.longest_batch_ms} ms, {part.ram_mib} MiB, "
                f"{part.disk_bytes / 1e9:.2f} GB",
                err=True,
            )
        judge.state.close()
    sys.stdout.write(json.dumps(summary(done, without), indent=2) + "\n")


def summary(done: list[Part], without: float) -> dict[str, Any]:
    """All figures of a run, and how far those of its last half are apart."""
    half = done[len(done) // 2 :]

    def spread(values: list[float]) -> float:
        return round(max(values) / min(values) - 1, 3)

    seconds = sum(part.seconds for part in half)
    rate = sum(part.judged for part in half) / seconds
    return {
        "parts": [
            msgspec.to_builtins(part) | {"rows_per_second": round(part.rows_per_second)} for part in done
        ],
        "rows_per_second": round(rate),
        "to_that_without_lifetime": round(rate / without, 3),
        "carried_a_page": round(sum(p.carried for p in half) / sum(p.judged for p in half), 3),
        "turn_share": round(sum(part.turn_seconds for part in half) / seconds, 3),
        "longest_turn_ms": max(part.longest_turn_ms for part in done),
        "seconds_to_start": [part.seconds_to_start for part in done if part.seconds_to_start],
        "spread_of_last_half": {
            "rows_per_second": spread([part.rows_per_second for part in half]),
            "ram": spread([float(part.ram_mib) for part in half]),
            "disk": spread([float(part.disk_bytes) for part in half]),
        },
    }


if __name__ == "__main__":
    command()
