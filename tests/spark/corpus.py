"""A corpus for engines: files of pages, the rows that they have to become, and the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from stream.fingerprint.scheme import Scheme
from stream.rows.columns import rows_of
from stream.rows.files import RowsReader
from stream.rows.fingerprint import fingerprint_batch
from tests.unit.test_rows import jsonl, table
from tests.unit.test_scan_rows import lines, scan
from tests.verdict_projection import projection

COUNT = 300


def pages_in(folder: Path) -> Path:
    """Three files of pages, of which each has pages of the whole corpus."""
    folder.mkdir()
    pages = pa.Table.from_batches([table(COUNT)])
    for first in range(3):
        parquet.write_table(pages.take(list(range(first, COUNT, 3))), folder / f"{first}.parquet")
    return folder


def seed_file(path: Path) -> Path:
    """A secret seed."""
    path.write_text("0123456789abcdef" * 2)
    return path


def assert_equal_rows(directory: Path, scheme: Scheme) -> None:
    """The rows are those that the function makes in this process."""
    expected = rows_of(fingerprint_batch(table(COUNT), scheme), scheme)
    assert list(RowsReader(directory).read(scheme)) == expected


def assert_equal_verdicts(directory: Path, tmp_path: Path) -> None:
    """The verdicts are those of a scan of the pages themselves, byte for byte."""
    scan(jsonl(tmp_path / "pages.jsonl", COUNT), "-o", tmp_path / "of-pages")
    scan(directory, "-o", tmp_path / "of-rows")
    assert projection(lines(tmp_path / "of-rows")) == projection(lines(tmp_path / "of-pages"))
