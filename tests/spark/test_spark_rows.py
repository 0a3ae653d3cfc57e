"""Rows made by a real Spark are those of this process, and so are the verdicts on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stream.fingerprint.scheme import Scheme
from stream.integrations.spark import fingerprint, write_rows
from tests.spark.corpus import COUNT, assert_equal_rows, assert_equal_verdicts, pages_in, seed_file


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Spark in this machine, with two workers."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # or workers take the first `python3`
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # on which Java ends
    gateway.proc.wait()


def test_spark_gives_the_rows_and_verdicts_of_one_machine(spark: SparkSession, tmp_path: Path) -> None:
    pages = spark.read.parquet(str(pages_in(tmp_path / "pages")))
    manifest = write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"))
    assert manifest.rows == COUNT
    assert_equal_rows(tmp_path / "rows", Scheme())
    assert_equal_verdicts(tmp_path / "rows", tmp_path)


def test_the_seed_is_in_no_plan_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    scheme = Scheme(seed_file=str(seed_file(tmp_path / "seed")))
    pages = spark.read.parquet(str(pages_in(tmp_path / "pages")))
    planned = fingerprint(pages, scheme)
    function = planned._jdf.queryExecution().analyzed().collectLeaves().toString()
    assert "0123456789abcdef" not in function + planned._jdf.queryExecution().toString()
    write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"), scheme=scheme)
    assert_equal_rows(tmp_path / "rows", scheme)
