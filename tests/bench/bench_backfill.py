"""What a corpus costs in batch: pages -> rows -> verdicts, in processor time; Spark beside our processes.

Spark is measured where `make engines` has installed it, in processes of its own. Of two jobs in one
process, the smaller is taken from the larger: what remains is the cost of a page without starting anything.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from stream.fingerprint.scheme import Scheme
from stream.local.scan import index_in, judge_sources
from stream.rows.files import sorted_table, write_file
from stream.rows.fingerprint import fingerprint_batch
from stream.rows.manifest import Manifest
from stream.settings import load
from stream.sources.rows import RowsSource
from tests.bench.bench_end_to_end import rotated, texts
from tests.bench.bench_worker import bodies

ROOT = Path(__file__).parents[2]
ENGINES_PYTHON = ROOT / ".cache" / "engines" / "bin" / "python"
PAGES = {"text": 20_000, "html": 6_000}
SMALL = 4
"""The smaller job has this share of the pages."""
ROUNDS = 3
"""The median of so many measurements counts."""
BATCH = 1024
GROUP_ROWS = 256
"""Rows of a row group: the smaller job, too, has some for every process, which would start in the larger."""
TEXT_CHARACTERS = 5000


def run(data: Path | None = None) -> dict[str, Any]:
    """The figures of text and of HTML pages; without Spark where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        return {kind: _of(kind, Path(folder, kind), data) for kind in PAGES}


def _of(kind: str, folder: Path, data: Path | None) -> dict[str, Any]:
    folder.mkdir()
    table = _table(kind, PAGES[kind], data)
    rounds = [folder / f"rows-{number}" for number in range(ROUNDS)]
    fingerprint = median(_fingerprinted(table, rows) for rows in rounds)
    decide = median(asyncio.run(_decided(rows, len(table))) for rows in rounds)
    (file,) = rounds[0].glob("*.parquet")
    found = {
        "pages": len(table),
        "bytes_a_page": round(table.nbytes / len(table)),
        "rows_bytes_a_page": round(file.stat().st_size / len(table), 1),
        "fingerprint_us_a_page": round(fingerprint, 1),
        "decide_us_a_page": round(decide, 1),
        "fingerprint_and_decide_us_a_page": round(fingerprint + decide, 1),
    }
    small, large = folder / "small.parquet", folder / "large.parquet"
    parquet.write_table(table.slice(0, len(table) // SMALL), small, row_group_size=GROUP_ROWS)
    parquet.write_table(table, large, row_group_size=GROUP_ROWS)
    own = _engine("own", small, large)
    found["own_processes_us_a_page"] = round(own, 1)
    if ENGINES_PYTHON.exists():
        # Not of Ray: it ends idle processes between two jobs, so that starting them is part of both.
        spark = _engine("spark", small, large)
        found["spark_us_a_page"] = round(spark, 1)
        found["spark_to_own_processes"] = round(spark / own, 2)
    return found


def _table(kind: str, count: int, data: Path | None) -> pa.Table:
    """Pages with an order key, all different."""
    if kind == "html":
        content = {"html": list(islice(rotated(bodies(data)), count))}
    elif data:
        content = {"text": list(islice(rotated(real_texts(data)), count))}
    else:
        content = {"text": [json.loads(value)["text"] for value in texts(count).values]}
    found = len(next(iter(content.values())))
    urls = [f"https://www.example{n % 97}.org/{n * 7919 % 100_003}/{n}.html" for n in range(found)]
    return pa.table({"url": urls, **content, "order": range(found)})


def real_texts(data: Path) -> list[str]:
    """Pieces of real texts of the length of a page."""
    with lzma.open(data / "revisions-en.jsonl.xz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line)["a"] for line in lines]
    return [
        text[start : start + TEXT_CHARACTERS]
        for text in found
        for start in range(0, len(text) - TEXT_CHARACTERS, TEXT_CHARACTERS)
    ]


def _fingerprinted(table: pa.Table, rows: Path) -> float:
    """Write rows; microseconds of processor time a page, with the write, in one process."""
    rows.mkdir()
    batches = table.combine_chunks().to_batches(max_chunksize=BATCH)
    fingerprint_batch(batches[0].slice(0, 2))  # loads tables and compiled loops
    begun = time.process_time()
    scheme = Scheme()
    made = sorted_table([fingerprint_batch(batch) for batch in batches], scheme)
    file = write_file(rows / "rows-000000.parquet", made)
    spent = time.process_time() - begun
    Manifest.of(scheme, [file]).write(rows)
    return spent / len(table) * 1e6


async def _decided(rows: Path, count: int) -> float:
    """Microseconds of processor time a page to read rows and judge them, of the second half."""
    with (
        tempfile.TemporaryDirectory() as folder,
        index_in(Path(folder, "index"), load(), Scheme(), None) as index,
    ):
        seen, begun, first = 0, time.process_time(), 0
        async with aclosing(judge_sources(load(), index, [RowsSource(str(rows))])) as batches:
            async for decided in batches:
                seen += len(decided.json())
                if not first and seen >= count // 2:
                    first, begun = seen, time.process_time()
        return (time.process_time() - begun) / (seen - first) * 1e6


def _engine(engine: str, small: Path, large: Path) -> float:
    """Microseconds of processor time a page."""
    python = sys.executable if engine == "own" else str(ENGINES_PYTHON)
    files = (small, small, large)  # the first warms it up
    out = subprocess.run(
        [python, "-m", "tests.bench.backfill_engine", engine, *map(str, files)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    _, (few, less), (many, more) = json.loads(out.splitlines()[-1])
    each: float = (more - less) / (many - few) * 1e6
    return each
