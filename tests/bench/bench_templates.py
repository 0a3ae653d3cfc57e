"""Copies that are missed where thousands of pages share a template, by scanning real documentation.

    python -m tests.bench.bench_templates [pages [copies]]

All pages are judged first, then planted copies of some under other URLs, all by one index, as `neardup scan`
does. Nothing is downloaded: a set that `make bench` has not fetched is left out.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream.errors import NeardupError
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs
from stream.judge.rule import Rule
from stream.local import scan
from stream.local.index import Index
from stream.messages.verdict import VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.settings import load
from stream.text.extract import extract
from tests.bench.quality import ours, templates
from tests.bench.quality.templates import PlantedSet, jaccard
from tests.bench.quality.truth import shingles

SETS: Final[dict[str, tuple[str, Callable[[], list[str]]]]] = {
    "rust-doc, text": ("text", templates.rust_pages),
    "javadoc, HTML": ("html", templates.javadoc_pages),
}
SIDES: Final = {
    "compared=512": VerdictOptions(compared=512),
    "bucket_cap=32": VerdictOptions(bucket_cap=32),
}
"""Other options, measured with the first seed of the hashes alone."""
SEED: Final = 1
"""Of the pages' order and of the copies."""
DRAWS: Final = 5
"""Seeds of the hashes, which decide which shingles are minima: one of them alone may be lucky."""
SAMPLE: Final = 100
"""Rows that are judged before any are measured."""
PRECISE: Final = 0.8
"""Jaccard similarity from which a duplicate is called rightly."""
EDGES: Final = (0.82, 0.85, 0.9, 0.95)
"""Of the similarities by which misses are listed."""


def run(pages: int = 1 << 30, copies: int = 6000) -> dict[str, Any]:
    """Figures of each set by options: of the copies of pages that are anchors, the share that is `unique`.

    Raises NeardupError if there is no set.
    """
    figures: dict[str, Any] = {}
    for name, (kind, read) in SETS.items():
        originals = read()
        if originals:
            figures[name] = _set(originals, kind, pages, copies)
    if not figures:
        raise NeardupError("bench quality: the documentation is missing; make bench fetches it")
    return figures


def _set(originals: list[str], kind: str, pages: int, copies: int) -> dict[str, Any]:
    planted = templates.plant(originals, kind, pages, copies, SEED)
    drawn, sides = [], {}
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        for draw in range(1, DRAWS + 1):
            seed_file = Path(directory, f"{draw}")
            seed_file.write_text(f"{draw:032x}")
            scheme = Scheme(seed_file=str(seed_file))
            rows = asyncio.run(_rows(planted, scheme))
            if draw == 1:
                _verdicts(rows[:SAMPLE], scheme, VerdictOptions())  # compiles
                sides = {name: _judge(planted, rows, scheme, options) for name, options in SIDES.items()}
            drawn.append(_judge(planted, rows, scheme, VerdictOptions()))
    return {
        f"default, mean of {DRAWS} seeds": _of_all(drawn, statistics.mean),
        f"default, worst of {DRAWS} seeds": _of_all(drawn, max),
        "default, first seed": drawn[0],
        **sides,
    }


async def _rows(planted: PlantedSet, scheme: Scheme) -> list[Row]:
    messages = ours.pages([*planted.pages, *planted.copies], planted.kind)
    chunks = scan.fingerprint_messages(load(page_deadline=120), scheme, scheme.seed(), messages)
    return [row async for chunk in chunks for row in chunk]


def _judge(
    planted: PlantedSet, rows: Sequence[Row], scheme: Scheme, options: VerdictOptions
) -> dict[str, float]:
    began = time.process_time()
    records = _verdicts(rows, scheme, options)
    seconds = time.process_time() - began
    sys.stderr.write(f"judged {len(rows)} rows in {seconds:.0f} s of processor time\n")
    verdicts = [each.verdict for each in records]
    return _figures(planted, rows, verdicts, Rule(options, scheme)) | {
        "precise": _precise(planted, rows, records),
        "processor_us_a_row": round(seconds / len(rows) * 1e6, 1),
    }


def _verdicts(rows: Sequence[Row], scheme: Scheme, options: VerdictOptions) -> list[VerdictRecord]:
    verdicts: list[VerdictRecord] = []
    with (
        tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory,
        Index(Path(directory, "index"), scheme=scheme, options=options) as index,
    ):
        for first in range(0, len(rows), scan.ROWS):
            decided = index.judge(rows[first : first + scan.ROWS])
            verdicts += decided.verdict_records()
    return verdicts


def _figures(
    planted: PlantedSet, rows: Sequence[Row], verdicts: Sequence[str], rule: Rule
) -> dict[str, float]:
    """`missed` are copies of anchors that are `unique`; `missed_alike` those of them that the rule calls
    duplicates of their page as soon as the two are compared."""
    first = len(planted.pages)
    unique = np.array([verdict == "unique" for verdict in verdicts])
    originals, similarity = np.array(planted.originals), np.array(planted.similarity)
    compared = np.array([verdict in ("unique", "duplicate") for verdict in verdicts])[first:]
    of_anchor = unique[originals] & compared
    of_duplicate = np.array([verdict == "duplicate" for verdict in verdicts])[originals] & compared
    missed = of_anchor & unique[first:]
    alike = _alike(rows, originals, first + np.arange(len(originals)), rule)
    by_similarity = {
        f"missed_{low}_to_{high}": _share(missed, of_anchor & (similarity >= low) & (similarity < high))
        for low, high in pairwise(EDGES)
    }
    return {
        "anchors": int(unique[:first].sum()),
        "copies_of_anchors": int(of_anchor.sum()),
        "missed": _share(missed, of_anchor),
        "missed_alike": _share(missed & alike, of_anchor),
        "missed_up_to": round(float(similarity[missed].max(initial=0)), 3),
        **by_similarity,
        "copies_of_duplicates": int(of_duplicate.sum()),
        "of_duplicates_unique": _share(unique[first:], of_duplicate),
    }


def _precise(planted: PlantedSet, rows: Sequence[Row], records: Sequence[VerdictRecord]) -> float:
    """Of the pages that are called duplicates, the share whose J with the page that they are compared with is
    .8 or more."""
    texts, place = [*planted.pages, *planted.copies], {row.url: number for number, row in enumerate(rows)}
    read = extract if planted.kind == "html" else str
    alike = []
    for number, record in enumerate(records):
        if record.duplicate_of is not None and record.verdict == "duplicate":
            other = texts[place[record.duplicate_of.url]]
            sets = (set(shingles(read(text))) for text in (texts[number], other))
            alike.append(jaccard(*sets) >= PRECISE)
    return round(statistics.mean(alike), 4) if alike else 1.0


def _alike(rows: Sequence[Row], originals: np.ndarray, copies: np.ndarray, rule: Rule) -> np.ndarray:
    """Whether the rule calls each copy a duplicate of its page, however candidates are looked for."""
    sketches = np.frombuffer(
        b"".join(row.sketch.ljust(rule.scheme.sketch_bytes, b"\0") for row in rows), "<u8"
    )
    sketches = sketches.reshape(len(rows), -1).astype(np.uint64)
    fingerprints = np.array([row.low for row in rows], np.uint64)
    near = np.bitwise_count(fingerprints[originals] ^ fingerprints[copies]) <= rule.options.within
    pairs = SketchPairs(sketches, originals, sketches, copies)
    alike: np.ndarray = near & (rule.similarities(pairs) >= rule.least(pairs))
    return alike


def _share(flags: np.ndarray, among: np.ndarray) -> float:
    return round(float(flags[among].mean()), 4) if among.any() else 0.0


def _of_all(drawn: list[dict[str, float]], choose: Callable[[Iterable[float]], float]) -> dict[str, float]:
    """Each figure over the seeds of the hashes."""
    return {name: round(choose([each[name] for each in drawn]), 4) for name in drawn[0]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")
