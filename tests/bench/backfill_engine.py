"""Processor time of fingerprinting a corpus into sorted rows: our own processes, Spark or Ray.

    python -m tests.bench.backfill_engine own|spark|ray PAGES [PAGES ...]

Each PAGES is a Parquet file with `order`, or a directory of such files. It prints, for each, the pages and
the processor seconds of all processes, as JSON. Start-up falls out of the difference of two: processes of an
engine outlive a job.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from pyarrow import parquet

Job = Callable[[Path, Path], None]
PROCESSES = 2
LOOK_SECONDS = 0.1
BLOCK_ROWS = 16_384
"""Pages of a block of Ray, which cuts a small corpus into 200 otherwise."""


class Spent:
    """Processor seconds of this process and of all that it started, and they, while they were seen alive.

    Processes are looked at again and again: an engine ends workers, whose times nobody inherits.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def seconds(self) -> float:
        """Seconds so far."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                times = process.cpu_times()
                self._seen[process.pid, process.create_time()] = times.user + times.system
        return time.process_time() + sum(self._seen.values())

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.seconds()


@contextmanager
def own() -> Iterator[Job]:
    """`neardup fingerprint --output`."""
    from stream.fingerprint.scheme import Scheme
    from stream.local.corpus import fingerprint_corpus
    from stream.settings import load
    from stream.sources.open import open_source

    def job(pages: Path, rows: Path) -> None:
        settings = load(worker_processes=PROCESSES)
        files = sorted(pages.iterdir()) if pages.is_dir() else [pages]
        sources = [open_source(str(file)) for file in files]
        asyncio.run(fingerprint_corpus(settings, Scheme(), sources, rows))

    yield job


@contextmanager
def spark() -> Iterator[Job]:
    """`stream.integrations.spark`, on this machine."""
    from pyspark.sql import SparkSession

    from stream.integrations.spark import write_rows

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{PROCESSES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(PROCESSES))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1024")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    gateway: Any = session.sparkContext._gateway

    def job(pages: Path, rows: Path) -> None:
        work = rows.with_name(f"{rows.name}-unsorted")
        write_rows(session.read.parquet(str(pages)), str(rows), work=str(work))

    yield job
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@contextmanager
def ray() -> Iterator[Job]:
    """`stream.integrations.ray`, on this machine."""
    import ray

    from stream.integrations.ray import write_rows

    ray.init(num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False, object_store_memory=512 << 20)

    def job(pages: Path, rows: Path) -> None:
        files = pages.iterdir() if pages.is_dir() else [pages]
        count = sum(parquet.read_metadata(file).num_rows for file in files)
        blocks = max(PROCESSES, count // BLOCK_ROWS)
        write_rows(ray.data.read_parquet(str(pages), override_num_blocks=blocks), str(rows))

    yield job
    ray.shutdown()


ENGINES: dict[str, Callable[[], Any]] = {"own": own, "spark": spark, "ray": ray}


def main(engine: str, *files: str) -> list[tuple[int, float]]:
    """Pages and processor seconds of each file."""
    found = []
    with tempfile.TemporaryDirectory() as folder, ENGINES[engine]() as job:
        spent = Spent()
        for number, file in enumerate(files):
            before = spent.seconds()
            job(Path(file), Path(folder, f"rows-{number}"))
            found.append((parquet.read_metadata(file).num_rows, spent.seconds() - before))
        spent.end()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
