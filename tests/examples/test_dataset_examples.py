"""The examples for datatrove and Hugging Face datasets, on the real packages."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stream.fingerprint.row import Status
from tests.documented import ROOT
from tests.examples.sandbox import assert_printed, enter_sandbox

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter_sandbox(tmp_path, monkeypatch)
    return Path.cwd()


def run(*command: str) -> str:
    """What an example prints. Nothing is fetched."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": "cache"}
    done = subprocess.run(
        [sys.executable, *command], env=os.environ | offline, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def documents(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_filter_for_datatrove_writes_what_it_keeps_and_why_it_drops_the_rest(sandbox: Path) -> None:
    (sandbox / "pages").mkdir()
    (sandbox / "pages.jsonl").rename(sandbox / "pages" / "pages.jsonl")
    run("filter_with_datatrove.py", "pages/", "filtered/")
    kept = [each["metadata"]["url"].rpartition("/")[2] for each in documents(sandbox / "filtered" / "kept")]
    assert kept == ["lighthouse", "market", "loading"]
    dropped = documents(sandbox / "filtered" / "dropped")
    assert [each["metadata"]["filter_reason"] for each in dropped] == ["duplicate", "recrawl"]


def test_filter_for_datatrove_refuses_several_tasks() -> None:
    step = runpy.run_path(str(EXAMPLES / "filter_with_datatrove.py"))["NearDuplicates"]()
    with pytest.raises(ValueError, match="tasks=1"):
        next(step.run([], rank=0, world_size=2))


def test_map_over_a_dataset_does_what_its_page_says(sandbox: Path) -> None:
    assert_printed("datasets.md", run("map_with_datasets.py", "pages.jsonl", "deduplicated.parquet"))
    kept = parquet.read_table(sandbox / "deduplicated.parquet")["url"].to_pylist()
    assert [url.rpartition("/")[2] for url in kept] == ["lighthouse", "market", "loading"]


def test_pages_of_a_dataset_without_urls_get_one_each() -> None:
    rows_of = runpy.run_path(str(EXAMPLES / "map_with_datasets.py"))["rows_of"]
    rows = rows_of(pa.table({"text": ["some words of a page " * 9] * 2}), [7, 8])
    assert rows["url"].to_pylist() == ["https://dataset.example/7", "https://dataset.example/8"]
    assert rows["status"].to_pylist() == [Status.READY, Status.READY]
