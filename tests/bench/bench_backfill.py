"""What a corpus costs in batch: pages -> rows -> verdicts, in processor time.

Of two jobs of `neardup fingerprint`, the smaller is taken from the larger: what remains is the cost of a page
without starting anything.
"""

from __future__ import annotations

import asyncio
import json
import resource
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
from tests.bench.pages import bodies, real_texts, rotated, texts

PAGES = {"text": 20_000, "html": 6_000}
SMALL = 4
"""The smaller job has this share of the pages."""
ROUNDS = 3
"""The median of so many measurements counts."""
BATCH = 1024
GROUP_ROWS = 256
"""Rows of a row group: the smaller job, too, has some for every process, which would start in the larger."""


def run(data: Path | None = None) -> dict[str, Any]:
    """The figures of text and of HTML pages."""
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
    less, more = map(_command, (small, large))
    found["own_processes_us_a_page"] = round((more - less) / (len(table) - len(table) // SMALL) * 1e6, 1)
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


def _command(pages: Path) -> float:
    """Seconds of processor time of `neardup fingerprint`, with its children."""
    command = [
        sys.executable,
        "-m",
        "stream.cli",
        "fingerprint",
        str(pages),
        "-o",
        str(pages.with_suffix("")),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--worker-processes", "2"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
