"""The judge's core up to a large number of anchors:

    python -m tests.bench.growth --anchors 2e7 --directory DIRECTORY [--tables-memory 8GiB]

DIRECTORY keeps the state: a larger `--anchors` continues a finished run. Rates count what deciding and
applying take. Planted copies are decided, but not applied.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import numpy as np

from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.offline.planner import parse_memory, parse_pages
from stream.ops.runtime_tuning import batch_process_tuning
from tests.bench.made_judge import FIRST, MadeJudge, Part
from tests.bench.made_rows import NEAR, ROWS, MadeRows, is_new

COPIES: Final = 32 * ROWS
"""Planted copies whose recall is measured."""
STRANGERS: Final = 8
"""Records of pages that are like none."""
SLICE: Final = 500_000
"""Anchors between two figures."""
MARGIN: Final = 3
"""Slices on each side that a slice is compared with."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is found of planted pages."""

    recall: float
    """Share of planted copies of rows from all of the run that are duplicates."""
    stranger_groups: float
    """Groups read from RocksDB for a page that is like none."""


def find_planted(judge: MadeJudge, copies: int) -> Found:
    """Decide planted copies, and pages that are like none."""
    first, made = judge.next, judge.made
    originals = np.linspace(0, (first - FIRST) * ROWS - 1, 2 * copies).astype(np.int64)
    records = made.copies(originals[is_new(originals)][:copies], first - FIRST)
    entries = [judge.entry(offset, record) for offset, record in enumerate(records, first)]
    verdicts = judge.judge.decide(entries).verdicts.columns.verdict
    strangers = MadeRows(made.scheme, made.seed + 10)
    offsets = range(first, first + STRANGERS)
    others = [judge.entry(offset, strangers.record(offset - FIRST)) for offset in offsets]
    before = judge.state.tables.stats.rocks_probes
    judge.judge.decide(others)
    read = judge.state.tables.stats.rocks_probes - before
    recall = float(np.mean(verdicts == Verdict.DUPLICATE))
    return Found(round(recall, 5), round(read / (STRANGERS * ROWS), 3))


def slowest(parts: list[Part]) -> float:
    """Least rate of a slice, as a multiple of the median rate of the slices beside it."""
    rates = [each.rows_per_second for each in parts]
    beside = [
        rates[max(0, place - MARGIN) : place] + rates[place + 1 : place + 1 + MARGIN]
        for place in range(len(rates))
    ]
    return min(
        (round(rate / median(others), 3) for rate, others in zip(rates, beside, strict=True) if others),
        default=1.0,
    )


def grow(directory: Path, anchors: int, memory: int, sketch_bins: int) -> dict[str, Any]:
    """Judge rows until there are so many anchors, and return all figures; progress goes to stderr."""
    scheme, parts = Scheme(sketch_bins=sketch_bins), list[Part]()
    judge = MadeJudge(directory / "state", VerdictOptions(), scheme=scheme, memory=memory)
    begun = judge.state.tables.count
    if begun >= anchors:
        raise SettingsError(f"--anchors {anchors}: the state in {directory} has {begun} already")
    edges = [*range(begun, anchors, SLICE), anchors]
    for first, end in pairwise(edges):
        parts.append(part := judge.measure(round((end - first) / (1 - NEAR))))
        click.echo(
            f"{part.anchors:,} of {anchors:,} anchors, {part.rows_per_second:,.0f} rows/s, longest batch "
            f"{part.longest_batch_ms} ms, {part.groups_a_row} groups a row, {part.runs} runs, "
            f"{part.ram_mib} MiB",
            err=True,
        )
    found = find_planted(judge, COPIES)
    judge.close()
    again = MadeJudge(directory / "state", VerdictOptions(), scheme=scheme, memory=memory)
    again.close()
    last = parts[-1]
    return {
        "anchors": last.anchors,
        "rows_per_second": {f"{part.anchors:,}": round(part.rows_per_second) for part in parts},
        "slowest_slice": slowest(parts),
        "longest_batch_ms": max(part.longest_batch_ms for part in parts),
        "recall": found.recall,
        "stranger_groups": found.stranger_groups,
        "groups_a_row": last.groups_a_row,
        "ram_mib": max(part.ram_mib for part in parts),
        "disk_bytes_an_anchor": round(last.disk_bytes / last.anchors),
        "seconds_to_start": round(again.seconds_to_start, 2),
    }


@click.command("growth")
@click.option("--anchors", required=True, help="Number of anchors to grow to, such as 1e8.")
@click.option(
    "--directory", required=True, type=click.Path(path_type=Path, file_okay=False),
    help="Keeps the state. At 1e8 anchors it takes 70 GB, or 35 GB with --sketch-bins 64.",
)  # fmt: skip
@click.option("--tables-memory", default="1GiB", show_default=True, help="RAM of the tables.")
@click.option("--sketch-bins", type=int, default=1920, show_default=True, help="Fewer bins save disk.")
def command(anchors: str, directory: Path, tables_memory: str, sketch_bins: int) -> None:
    """Grow a judge to many anchors. Prints the figures as JSON; progress goes to stderr."""
    directory.mkdir(parents=True, exist_ok=True)
    memory = parse_memory(tables_memory, "tables-memory")
    with batch_process_tuning():
        figures = grow(directory, parse_pages(anchors, "anchors"), memory, sketch_bins)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    command()
