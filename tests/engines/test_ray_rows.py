"""Rows made by a real Ray are those of one machine, and so are the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet
from ray.data import Dataset, read_parquet

from stream.fingerprint.scheme import Scheme
from stream.integrations.ray import write_rows
from tests.engines.corpus import (
    COUNT,
    Corpus,
    Expected,
    check_rows_of_named,
    rows,
    seed_file,
    verdicts_on,
    write_named,
)
from tests.unit.test_ways_in import PAGE_BYTES, hostile, of_one_machine

pytestmark = pytest.mark.usefixtures("ray")


def pages(made: Corpus) -> Dataset:
    """The pages in four blocks: Ray's own choice is 200, and as many files of rows."""
    return read_parquet(str(made.folder), override_num_blocks=4)


def test_ray_gives_the_rows_and_verdicts_of_one_machine(
    made: Corpus, one_machine: Expected, tmp_path: Path
) -> None:
    assert write_rows(pages(made), str(tmp_path / "rows")).rows == COUNT
    assert rows(tmp_path / "rows") == one_machine.rows
    assert verdicts_on(tmp_path / "rows", tmp_path) == one_machine.verdicts


def test_pages_that_no_way_takes_are_rejected_by_ray_for_the_same_reasons(tmp_path: Path) -> None:
    parquet.write_table(hostile(), tmp_path / "pages.parquet")
    pages = read_parquet(str(tmp_path / "pages.parquet"), override_num_blocks=1)
    write_rows(pages, str(tmp_path / "rows"), page_bytes=PAGE_BYTES)
    assert [each.row for each in rows(tmp_path / "rows")] == of_one_machine(tmp_path / "pages.parquet")


def test_workers_of_ray_read_the_seed_from_its_file(made: Corpus, tmp_path: Path) -> None:
    scheme = Scheme(seed_file=str(seed_file(tmp_path / "seed")))
    write_rows(pages(made), str(tmp_path / "rows"), scheme=scheme)
    assert len(rows(tmp_path / "rows", scheme)) == COUNT


def test_columns_with_other_names_and_ids_make_rows_on_ray(tmp_path: Path) -> None:
    columns = write_named(tmp_path / "pages.parquet")
    pages = read_parquet(str(tmp_path / "pages.parquet"), override_num_blocks=2)
    write_rows(pages, str(tmp_path / "rows"), columns=columns)
    check_rows_of_named(tmp_path / "rows")
