"""The SQL of docs/examples keeps one page of each cluster, and accounts for every other page."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from stream.rows.fingerprint import fingerprint_batch
from tests.commands import neardup
from tests.documented import ROOT
from tests.kafka.judge_helpers import text
from tests.unit.test_rows import directory

pytestmark = pytest.mark.usefixtures("no_children")

SQL = ROOT / "docs" / "examples"

HARBOUR, MARKET, MILL = text("harbour"), text("market"), text("mill")
OLD = [
    ("https://a.example/harbour", HARBOUR, 3),
    ("https://b.example/harbour", f"{HARBOUR} and some more words", 1),
    ("https://c.example/harbour", HARBOUR.rsplit(" ", 3)[0], 9),
    ("https://a.example/market", MARKET, 2),
    ("https://d.example/market", MARKET, 1),
    ("https://a.example/market?utm_source=feed", text("something else"), 4),
    ("https://a.example/harbour?utm_source=feed", HARBOUR, 5),
    ("https://e.example/short", "Loading", None),
    ("https://f.example/short", "Loading", None),
    ("no URL", HARBOUR, 6),
]
NEW = [
    ("https://a.example/mill", MILL, 7),
    ("https://b.example/mill", f"{'unquestionably ' * 6}{MILL.split(' ', 6)[6]}", 7),
    ("https://c.example/mill", f"{MILL.rsplit(' ', 6)[0]} not a word of these at all", 7),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of an old corpus and of new data, each in two files, judged one after the other."""
    folder = tmp_path_factory.mktemp("keep")
    for name, pages in (("old", OLD), ("new", NEW)):
        columns = {
            "url": [url for url, _, _ in pages],
            "text": [each for _, each, _ in pages],
            "fetched_at": [None if day is None else day * 86_400_000 for _, _, day in pages],
            "order": [0] * len(pages),
            "source": [f"{name}.jsonl"] * len(pages),
            "position": list(range(len(pages))),
        }
        rows = fingerprint_batch(pa.record_batch(columns))
        directory(folder / name, *[rows.take(list(range(first, len(pages), 2))) for first in range(2)])
        target = ("--index", folder / "index", "-o", folder / "verdicts.parquet")
        assert neardup("scan", folder / name, *target).exit_code == 0
    return folder


def kept(corpus: Path, keep: str) -> Any:
    return keep_one(keep, [corpus / "old", corpus / "new"], corpus / "verdicts.parquet")


def keep_one(keep: str, rows: list[Path], verdicts: Path) -> Any:
    """A database with the tables `kept` and `dropped`."""
    database = duckdb.connect()
    database.execute("SET VARIABLE rows = $rows", {"rows": list(map(str, rows))})
    database.execute("SET VARIABLE verdicts = $files", {"files": f"{verdicts}/*.parquet"})
    database.execute("SET VARIABLE keep = $keep", {"keep": keep})
    for name in ("judged.sql", "keep_one.sql"):
        database.execute((SQL / name).read_text())
    return database


def test_the_best_needs_a_quality(corpus: Path) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="no page of `judged` has a quality"):
        kept(corpus, "quality")


def test_every_other_page_says_why_it_is_dropped_and_for_which(corpus: Path) -> None:
    with kept(corpus, "longest") as database:
        question = "SELECT url, why, kept_url FROM dropped WHERE url NOT LIKE '%/mill' ORDER BY why, position"
        found = database.execute(question).fetchall()
        accounted = database.execute("SELECT id FROM kept UNION ALL SELECT id FROM dropped").fetchall()
    assert len(accounted) == len(set(accounted)) == len(OLD + NEW)
    longest = "https://b.example/harbour"
    assert found == [
        ("https://a.example/harbour", "old version", None),
        ("https://a.example/market", "old version", None),
        ("no URL", "rejected", None),
        ("https://c.example/harbour", "same cluster", longest),
        ("https://a.example/harbour?utm_source=feed", "same cluster", longest),
        ("https://f.example/short", "same short text", "https://e.example/short"),
    ]


def test_what_is_kept_is_found_in_files_of_json_lines(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the numbers of their pages, of which empty lines are none."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"url": url, "title": number}) for number, (url, _, _) in enumerate(OLD)]
    Path("old.jsonl").write_text("\n\n".join(lines))
    keep_one = runpy.run_path(str(SQL / "keep_one.py"))["main"]
    keep_one("newest", str(corpus / "old"), str(corpus / "verdicts.parquet"), "old.jsonl")
    assert duckdb.sql("SELECT title FROM 'deduplicated.parquet' ORDER BY title").fetchall() == [
        (2,), (4,), (5,), (7,)
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [[], ["longest", "rows"], ["longet", "rows", "verdicts.parquet"]])
def test_wrong_arguments_are_answered_by_how_it_is_called(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["keep_one.py", *arguments])
    with pytest.raises(SystemExit, match=r"^usage: python keep_one\.py first\|longest\|newest\|qual.*=HOST"):
        runpy.run_path(str(SQL / "keep_one.py"), run_name="__main__")
