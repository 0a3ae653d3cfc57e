"""The example for Spark goes from web archives to deduplicated Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.sandbox import assert_deduplicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_example_for_spark_does_what_its_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_deduplicates("spark", tmp_path, monkeypatch, capfd)
