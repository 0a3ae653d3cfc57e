"""Rows made by a real Spark are those of one machine, and so are the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.integrations.spark import fingerprint, write_rows
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


def test_spark_gives_the_rows_and_verdicts_of_one_machine(
    spark: SparkSession, made: Corpus, one_machine: Expected, tmp_path: Path
) -> None:
    pages = spark.read.parquet(str(made.folder)).withColumnRenamed("url", "URL").withColumn("links", lit(7))
    assert "links" not in fingerprint(pages)._jdf.queryExecution().optimizedPlan().toString()
    manifest = write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"))
    assert manifest.rows == COUNT
    assert rows(tmp_path / "rows") == one_machine.rows
    assert verdicts_on(tmp_path / "rows", tmp_path) == one_machine.verdicts


def test_a_dataframe_without_pages_is_refused_before_any_task(spark: SparkSession) -> None:
    with pytest.raises(SettingsError, match="no column `order`, by which pages are judged; it has url, text"):
        fingerprint(spark.createDataFrame([("a", "b")], "url string, text string"))


@pytest.mark.parametrize("kind", ["array<string>", "struct<a: string>", "map<string, string>", "bigint"])
def test_a_column_of_a_type_that_no_page_has_is_refused_before_any_task(
    spark: SparkSession, kind: str
) -> None:
    pages = spark.sql(f"select 'a' as url, cast(null as {kind}) as text, 1 as order")
    with pytest.raises(SettingsError, match=r"pages: column `text` is .*, not a string or bytes"):
        fingerprint(pages)


def test_pages_that_no_way_takes_are_rejected_by_spark_for_the_same_reasons(
    spark: SparkSession, tmp_path: Path
) -> None:
    parquet.write_table(hostile(), tmp_path / "pages.parquet")
    pages = spark.read.parquet(str(tmp_path / "pages.parquet"))
    write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"), page_bytes=PAGE_BYTES)
    assert [each.row for each in rows(tmp_path / "rows")] == of_one_machine(tmp_path / "pages.parquet")


def test_the_seed_is_in_no_plan_of_spark(spark: SparkSession, made: Corpus, tmp_path: Path) -> None:
    scheme = Scheme(seed_file=str(seed_file(tmp_path / "seed")))
    pages = spark.read.parquet(str(made.folder))
    planned = fingerprint(pages, scheme)
    function = planned._jdf.queryExecution().analyzed().collectLeaves().toString()
    assert "0123456789abcdef" not in function + planned._jdf.queryExecution().toString()
    write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"), scheme=scheme)
    assert len(rows(tmp_path / "rows", scheme)) == COUNT


def test_columns_with_other_names_and_ids_make_rows_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    columns = write_named(tmp_path / "pages.parquet")
    pages = spark.read.parquet(str(tmp_path / "pages.parquet"))
    write_rows(pages, str(tmp_path / "rows"), work=str(tmp_path / "work"), columns=columns)
    check_rows_of_named(tmp_path / "rows")
