"""Judges a large corpus in several ways, and prints the digest of each way's verdicts: they have to be equal.

    .cache/engines/bin/python -m tests.engines.same_verdicts --pages 1000000 [--data DIRECTORY]
    .venv/bin/python -m tests.engines.same_verdicts --pages 1000000 --ways scan own load stream

The ways are a scan of the pages; scans of the rows that `neardup fingerprint` (`own`), Spark and Ray make of
them; and, on a real broker, `neardup load` of our own rows, and a stream of the pages. Half of the pages are
made, half are pieces of real texts where there are data; a fifth are copies, changed or not, and some are
rejected. Run by hand: it takes long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.bench import backfill_engine
from tests.bench.bench_backfill import real_texts
from tests.bench.bench_end_to_end import rotated
from tests.commands import neardup
from tests.engines import kafka_ways
from tests.verdict_projection import SAME

FILES = 8
BATCH = 4096
WORDS = 60
COPIES = 0.2


def pages(count: int, data: Path | None) -> Iterator[dict[str, Any]]:
    """Pages in their order."""
    rng = random.Random(23)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(3, 9))) for _ in range(5000)]
    real = rotated(real_texts(data)) if data else iter(())
    before: list[str] = []
    for number in range(count):
        url = f"https://www.example{number % 997}.org/{number}"
        if number % 1000 == 7:
            yield {"url": url}
            continue
        if before and rng.random() < COPIES:
            text = rng.choice(before)
            if rng.random() < 0.5:
                text += f" {rng.choice(words)}"
        else:
            text = (next(real, None) if number % 2 else None) or " ".join(rng.choices(words, k=WORDS))
            if len(before) < 20_000:
                before.append(text)
            else:
                before[rng.randrange(len(before))] = text
        yield {"url": url, "text": text}


def write(folder: Path, count: int, data: Path | None) -> list[Path]:
    """Parquet files of which each follows on the one before."""
    folder.mkdir()
    kinds = {"url": pa.string(), "text": pa.string(), "order": pa.int64()}
    made, number, files = pages(count, data), 0, []
    for part in range(FILES):
        files.append(folder / f"{part}.parquet")
        with parquet.ParquetWriter(files[-1], pa.schema(kinds)) as writer:
            left = count * (part + 1) // FILES - number
            while batch := list(islice(made, min(BATCH, left))):
                rows = [page | {"order": number + place} for place, page in enumerate(batch)]
                writer.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)))
                number, left = number + len(batch), left - len(batch)
    return files


def digest(verdicts: Iterable[bytes]) -> str:
    """The digest of the projection (tests/verdict_projection.py) of verdicts in the order of their pages."""
    places: dict[str, int] = {}
    found = hashlib.sha256()
    for line in verdicts:
        verdict = json.loads(line)
        place = places[verdict["id"]] = len(places)
        other, cluster = verdict["duplicate_of"], verdict["cluster"]
        told = {
            "order": place,
            **{name: verdict[name] for name in SAME},
            "cluster": places[cluster] if cluster else None,
            "duplicate_of": places[other["id"]] if other else None,
        }
        found.update(json.dumps(told, sort_keys=True).encode() + b"\n")
    return f"{len(places):,} verdicts, {found.hexdigest()}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus in a folder, in which the ways work."""

    folder: Path
    files: Sequence[Path]
    count: int

    def rows(self, engine: str) -> Path:
        """The rows that an engine makes, once."""
        rows = self.folder / f"rows-{engine}"
        if not rows.exists():
            with backfill_engine.ENGINES[engine]() as job:
                job(self.folder / "pages", rows)
        return rows

    def scanned(self, *sources: Path) -> str:
        """The digest of a scan."""
        output = self.folder / "verdicts.jsonl"
        neardup("scan", *sources, "-o", output)
        with output.open("rb") as lines:
            return digest(lines)


WAYS: dict[str, Callable[[Corpus], str]] = {
    "scan": lambda corpus: corpus.scanned(*corpus.files),
    "own": lambda corpus: corpus.scanned(corpus.rows("own")),
    "spark": lambda corpus: corpus.scanned(corpus.rows("spark")),
    "ray": lambda corpus: corpus.scanned(corpus.rows("ray")),
    "load": lambda corpus: digest(kafka_ways.loaded(corpus.rows("own"), corpus.count, corpus.folder)),
    "stream": lambda corpus: digest(kafka_ways.streamed(corpus.files, corpus.count, corpus.folder)),
}


def main() -> None:
    """Print a line for each way; exit with 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neardup-ways-") as temporary:
        folder = Path(temporary)
        corpus = Corpus(folder, write(folder / "pages", asked.pages, asked.data), asked.pages)
        found = set()
        for way in asked.ways:
            begun = time.monotonic()
            found.add(told := WAYS[way](corpus))
            sys.stdout.write(f"{way:6} {told} ({time.monotonic() - begun:,.0f} s)\n")
            sys.stdout.flush()
    sys.exit(len(found) > 1)


if __name__ == "__main__":
    main()
