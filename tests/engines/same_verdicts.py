"""Judges a large corpus in four ways, and prints the digest of each way's verdicts: they have to be equal.

    .cache/engines/bin/python -m tests.engines.same_verdicts --pages 1000000 [--data DIRECTORY]

The ways are a scan of the pages, and scans of the rows that `neardup fingerprint`, Spark and Ray make of
them. Half of the pages are made, half are pieces of real texts where there are data; a fifth are copies,
changed or not, and some are rejected. Run by hand: it takes long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.bench import backfill_engine
from tests.bench.bench_backfill import real_texts
from tests.bench.bench_end_to_end import rotated
from tests.commands import neardup
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


def digest(verdicts: Path) -> str:
    """The digest of the projection (tests/verdict_projection.py) of a scan's verdicts, which are in order."""
    places: dict[str, int] = {}
    found = hashlib.sha256()
    with verdicts.open("rb") as lines:
        for line in lines:
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


def main() -> None:
    """Print a line for each way; exit with 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--ways", nargs="+", choices=["own", "spark", "ray"], default=["own", "spark", "ray"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neardup-four-ways-") as temporary:
        folder = Path(temporary)
        files = write(folder / "pages", asked.pages, asked.data)
        found = {_told("scan", lambda: _judged(folder / "of-pages", *files))}
        for way in asked.ways:
            rows = folder / f"rows-{way}"
            with backfill_engine.ENGINES[way]() as job:
                job(folder / "pages", rows)
            found.add(_told(way, lambda: _judged(folder / "of-rows", rows)))  # noqa: B023 - called at once
    sys.exit(len(found) > 1)


def _judged(output: Path, *sources: Path) -> str:
    neardup("scan", *sources, "-o", output)
    return digest(output)


def _told(way: str, judge: Callable[[], str]) -> str:
    begun = time.monotonic()
    found = judge()
    sys.stdout.write(f"{way:6} {found} ({time.monotonic() - begun:,.0f} s)\n")
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    main()
