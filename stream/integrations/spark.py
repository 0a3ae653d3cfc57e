"""Fingerprints a Spark DataFrame of pages into rows (`pip install 'neardup-stream[spark]'`).

    from stream.integrations.spark import write_rows

    pages = spark.read.parquet("crawl/")        # url, html or text or body, ...; and `order`
    write_rows(pages, "rows/", work="rows-unsorted/")

Workers need the same Python with this package: set `PYSPARK_PYTHON`, or they take the first `python3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from stream.fingerprint.scheme import Scheme
from stream.pages.columns import NO_COLUMNS, Columns
from stream.pages.page import PAGE_BYTES
from stream.rows.arrow import TYPES
from stream.rows.files import seal
from stream.rows.fingerprint import columns_read, fingerprint_batch, refuse_misfits
from stream.rows.manifest import Manifest

_TYPES: Final = {
    pa.int8(): "TINYINT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
}
SCHEMA: Final = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in TYPES.items())
"""The columns of rows in Spark's words."""


def fingerprint(
    pages: DataFrame,
    scheme: Scheme | None = None,
    *,
    columns: Columns = NO_COLUMNS,
    page_bytes: int = PAGE_BYTES,
) -> DataFrame:
    """The rows of pages (`stream.rows.fingerprint.fingerprint_batch`), lazily, without an order among them.
    `columns` names the columns that have other names than those of page messages.

    A scheme with a secret seed names its `seed_file`, which each worker reads from its own disk, such as a
    mounted secret: so the seed is neither in the plan nor in the event log. Raises SettingsError for a
    DataFrame without the columns of pages, or with types that these cannot have.
    """
    read = columns_read(pages.columns, columns)
    pages = pages.select(["`" + name.replace("`", "``") + "`" for name in read])
    refuse_misfits(to_arrow_schema(pages.schema), columns)
    return pages.mapInArrow(_batch_fingerprinter(scheme or Scheme(), columns, page_bytes), SCHEMA)


def _batch_fingerprinter(
    scheme: Scheme, columns: Columns, page_bytes: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fingerprint_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield fingerprint_batch(batch, scheme, columns=columns, page_bytes=page_bytes)

    return fingerprint_batches


def write_rows(
    pages: DataFrame,
    directory: str,
    *,
    work: str,
    scheme: Scheme | None = None,
    columns: Columns = NO_COLUMNS,
    page_bytes: int = PAGE_BYTES,
) -> Manifest:
    """Fingerprint pages into a directory of sorted rows with a manifest, for `neardup scan`.
    `columns` is as for `fingerprint`.

    Rows are first written unsorted to `work`, which the caller removes: a sort by range runs its input twice,
    and fingerprints are the costly part. Both directories are on a file system that driver and workers share.
    """
    session: Any = pages.sparkSession
    fingerprint(pages, scheme, columns=columns, page_bytes=page_bytes).write.parquet(work)
    place = ["order", "source", "position"]
    written = session.read.parquet(work)
    written.repartitionByRange(*place).sortWithinPartitions(*place).write.parquet(directory)
    return seal(Path(directory), scheme or Scheme())
