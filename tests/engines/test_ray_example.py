"""The example for Ray Data goes from web archives to deduplicated Parquet."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.examples.sandbox import LONGEST, assert_printed, enter_sandbox


def test_example_for_ray_does_what_its_page_says(
    ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    enter_sandbox(tmp_path, monkeypatch)
    runpy.run_path("deduplicate_with_ray.py")["main"]("crawl.warc.gz")
    printed = capfd.readouterr()
    assert_printed("ray.md", printed.out + printed.err)
    kept = parquet.read_table("deduplicated.parquet")
    assert set(kept["url"].to_pylist()) == LONGEST
    assert sum(b"Tuesday" in body for body in kept["body"].to_pylist()) == 1
