"""Copies that are missed where thousands of pages share a template, by scanning real documentation.

    python -m tests.bench.bench_templates [pages [copies]]

All pages are judged first, then planted copies of some under other URLs, all by one index, as `neardup scan`
does. Nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream.errors import NeardupError
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.local import scan
from stream.local.index import Index
from stream.messages.verdict import VerdictRecord
from stream.settings import load
from tests.bench.quality import ours, templates
from tests.bench.quality.templates import PlantedSet, jaccard
from tests.bench.quality.truth import shingles

SEED: Final = 1
"""Of the pages' order and of the copies."""
DRAWS: Final = 5
"""Seeds of the hashes, which decide which shingles are minima: one of them alone may be lucky."""
PRECISE: Final = 0.8
"""Jaccard similarity from which a duplicate is called rightly."""


def run(pages: int = 1 << 30, copies: int = 6000) -> dict[str, Any]:
    """Figures over the seeds: of the copies of pages that are anchors, the share that is `unique`.

    Raises NeardupError without the documentation.
    """
    originals = templates.rust_pages()
    if not originals:
        raise NeardupError("bench quality: the documentation is missing; make bench fetches it")
    planted, drawn = templates.plant(originals, pages, copies, SEED), []
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        for draw in range(1, DRAWS + 1):
            seed_file = Path(directory, f"{draw}")
            seed_file.write_text(f"{draw:032x}")
            scheme = Scheme(seed_file=str(seed_file))
            drawn.append(_figures(planted, asyncio.run(_rows(planted, scheme)), scheme))
    return {
        f"default, {said} of {DRAWS} seeds": {
            name: round(choose([each[name] for each in drawn]), 4) for name in drawn[0]
        }
        for said, choose in (("mean", statistics.mean), ("worst", max))
    }


async def _rows(planted: PlantedSet, scheme: Scheme) -> list[Row]:
    messages = ours.pages([*planted.pages, *planted.copies])
    chunks = scan.fingerprint_messages(load(page_deadline=120), scheme, scheme.seed(), messages)
    return [row async for chunk in chunks for row in chunk]


def _verdicts(rows: Sequence[Row], scheme: Scheme) -> list[VerdictRecord]:
    verdicts: list[VerdictRecord] = []
    with (
        tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory,
        Index(Path(directory, "index"), scheme=scheme) as index,
    ):
        for first in range(0, len(rows), scan.ROWS):
            verdicts += index.judge(rows[first : first + scan.ROWS]).verdict_records()
    return verdicts


def _figures(planted: PlantedSet, rows: Sequence[Row], scheme: Scheme) -> dict[str, float]:
    """`missed` are copies of anchors that are `unique`; `precise` is the share of the duplicates whose J with
    the page that they are compared with is .8 or more."""
    records, first = _verdicts(rows, scheme), len(planted.pages)
    unique, duplicate = (
        np.array([each.verdict == verdict for each in records]) for verdict in ("unique", "duplicate")
    )
    originals, compared = np.array(planted.originals), (unique | duplicate)[first:]
    of_anchor, of_duplicate = unique[originals] & compared, duplicate[originals] & compared
    missed = of_anchor & unique[first:]
    return {
        "anchors": int(unique[:first].sum()),
        "copies_of_anchors": int(of_anchor.sum()),
        "missed": _share(missed, of_anchor),
        "missed_up_to": round(float(np.array(planted.similarity)[missed].max(initial=0)), 3),
        "copies_of_duplicates": int(of_duplicate.sum()),
        "of_duplicates_unique": _share(unique[first:], of_duplicate),
        "precise": _precise(planted, rows, records),
    }


def _precise(planted: PlantedSet, rows: Sequence[Row], records: Sequence[VerdictRecord]) -> float:
    texts, place = [*planted.pages, *planted.copies], {row.url: number for number, row in enumerate(rows)}
    alike = []
    for number, record in enumerate(records):
        if record.duplicate_of is not None and record.verdict == "duplicate":
            other = texts[place[record.duplicate_of.url]]
            sets = (set(shingles(text)) for text in (texts[number], other))
            alike.append(jaccard(*sets) >= PRECISE)
    return round(statistics.mean(alike), 4) if alike else 1.0


def _share(flags: np.ndarray, among: np.ndarray) -> float:
    return round(float(flags[among].mean()), 4) if among.any() else 0.0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")
