"""Rows made by a real Ray are those of one machine, and so are the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.data import Dataset, read_parquet

from stream.fingerprint.scheme import Scheme
from stream.integrations.ray import write_rows
from tests.engines.corpus import COUNT, Corpus, Expected, rows, seed_file, verdicts_on

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


def test_workers_of_ray_read_the_seed_from_its_file(made: Corpus, tmp_path: Path) -> None:
    scheme = Scheme(seed_file=str(seed_file(tmp_path / "seed")))
    write_rows(pages(made), str(tmp_path / "rows"), scheme=scheme)
    assert len(rows(tmp_path / "rows", scheme)) == COUNT
