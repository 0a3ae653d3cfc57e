"""Fingerprints a Ray dataset of pages into rows (`pip install 'neardup-stream[ray]'`).

    import ray.data
    from stream.integrations.ray import write_rows

    pages = ray.data.read_parquet("crawl/")     # url, html or text or body, ...; and `order`
    write_rows(pages, "rows/")

Workers need this package: install it in the cluster's image, or name it in a `runtime_env`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
from ray.data import Dataset

from stream.fingerprint.scheme import Scheme
from stream.pages.columns import NO_COLUMNS, Columns
from stream.pages.page import PAGE_BYTES
from stream.rows.arrow import schema
from stream.rows.files import seal
from stream.rows.fingerprint import fingerprint_batch
from stream.rows.manifest import Manifest

BATCH_ROWS: Final = 1024
"""Pages that a task has in Python at once: some 100 MB of HTML."""


def fingerprint(
    pages: Dataset,
    scheme: Scheme | None = None,
    *,
    columns: Columns = NO_COLUMNS,
    page_bytes: int = PAGE_BYTES,
) -> Dataset:
    """The rows of pages (`stream.rows.fingerprint.fingerprint_batch`), lazily, without an order among them.
    `columns` names the columns that have other names than those of page messages.

    A scheme with a secret seed names its `seed_file`, which each worker reads from its own disk, such as a
    mounted secret: so the seed is in no task.
    """
    return pages.map_batches(
        _fingerprint_table,
        fn_args=(scheme or Scheme(), columns, page_bytes),
        batch_size=BATCH_ROWS,
        batch_format="pyarrow",
    )


def _fingerprint_table(table: pa.Table, scheme: Scheme, columns: Columns, page_bytes: int) -> pa.Table:
    made = [
        fingerprint_batch(batch, scheme, columns=columns, page_bytes=page_bytes)
        for batch in table.to_batches()
    ]
    return pa.Table.from_batches(made, schema(scheme))


def write_rows(
    pages: Dataset,
    directory: str,
    *,
    scheme: Scheme | None = None,
    columns: Columns = NO_COLUMNS,
    page_bytes: int = PAGE_BYTES,
) -> Manifest:
    """Fingerprint pages into a directory of sorted rows with a manifest, for `neardup scan`.
    `columns` is as for `fingerprint`.

    Rows wait for the sort in Ray's object store, which spills to disk: some 400 bytes a page. The directory
    is on a file system that driver and workers share.
    """
    rows = fingerprint(pages, scheme, columns=columns, page_bytes=page_bytes)
    rows.sort(["order", "source", "position"]).write_parquet(directory)
    return seal(Path(directory), scheme or Scheme())
