"""Deduplicate web archives with Spark: `python deduplicate_with_spark.py crawl.warc.gz more.warc.gz`.

Spark reads and fingerprints the archives. `neardup scan` judges the rows on one machine, `keep_one.py`
chooses the longest page of each cluster, and Spark writes those pages to `deduplicated.parquet`. Driver and
workers share the working directory.
"""

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, functions

from stream.integrations.spark import write_rows
from stream.sources.open import open_source

KEEP_ONE = str(Path(__file__).parent / "keep_one.py")
PAGES = "order BIGINT, source STRING, position BIGINT, message STRING"
MESSAGE = "url STRING, fetched_at TIMESTAMP, content_type STRING, body STRING"


def pages_of(archives: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pages of archives as page messages, judged in the order of archives and of the pages in them."""
    for batch in archives:
        for archive in batch.to_pylist():
            numbered = enumerate(open_source(archive["source"]))
            while some := list(islice(numbered, 64)):
                yield pa.RecordBatch.from_pylist(
                    [archive | {"position": place, "message": each.value.decode()} for place, each in some]
                )


def main(*archives: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    folder = Path.cwd()  # workers may have another
    named = [(order, str(folder / archive)) for order, archive in enumerate(archives)]
    listed = spark.createDataFrame(named, "order BIGINT, source STRING")
    pages = listed.repartition(len(archives)).mapInArrow(pages_of, PAGES)

    write_rows(pages, f"{folder}/rows", work=f"{folder}/rows-unsorted")
    subprocess.run(["neardup", "scan", "rows", "-o", "verdicts.parquet"], check=True)
    subprocess.run([sys.executable, KEEP_ONE, "longest", "rows", "verdicts.parquet"], check=True)

    kept = spark.read.parquet(f"{folder}/kept.parquet").select("source", "position")
    page = functions.from_json("message", MESSAGE).alias("page")
    body = functions.unbase64("page.body").alias("body")
    (
        pages.join(kept, ["source", "position"])
        .select(page)
        .select("page.url", "page.fetched_at", "page.content_type", body)
        .write.parquet(f"{folder}/deduplicated.parquet")
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
