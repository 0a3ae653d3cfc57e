"""What `neardup scan` writes where, and the limit that it judges by."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import neardup
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

TEXT = text(1)
URL = "http://a.example/x"


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def verdicts_in(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_no_cell_of_verdicts_is_a_formula(tmp_path: Path) -> None:
    jsonl(tmp_path / "data.jsonl", [{"url": "=1+1", "text": TEXT}, {"url": URL, "text": TEXT}])
    neardup("scan", tmp_path / "data.jsonl", "-o", tmp_path / "x.csv")
    verdicts = verdicts_in(tmp_path / "x.csv")
    assert [each["url"] for each in verdicts] == ["'=1+1", URL]


def test_similarity_is_the_limit_of_verdicts(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(200)]
    near = [*words[:190], *(f"other{number}" for number in range(10))]
    jsonl(
        tmp_path / "data.jsonl",
        [{"url": URL, "text": " ".join(words)}, {"url": "http://b.example/", "text": " ".join(near)}],
    )
    for limit, due in ((".98", "unique"), (".7", "duplicate")):
        neardup("scan", tmp_path / "data.jsonl", "-o", tmp_path / "x.csv", "--similarity", limit)
        assert [each["verdict"] for each in verdicts_in(tmp_path / "x.csv")] == ["unique", due]


def test_a_scan_that_goes_on_writes_csv_anew(tmp_path: Path) -> None:
    jsonl(tmp_path / "data.jsonl", [{"url": URL, "text": TEXT}])
    for verdict in ("unique", "recrawl"):
        neardup("scan", tmp_path / "data.jsonl", "--index", tmp_path / "i", "-o", tmp_path / "x.csv")
        assert [each["verdict"] for each in verdicts_in(tmp_path / "x.csv")] == [verdict]
