"""Rows give the verdicts of their pages, in the same order."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stream.errors import (
    PageError,
    RowsError,
    SchemeMismatchError,
    SettingsError,
)
from stream.fingerprint.row import Row, Status
from stream.local import scan as scan_module
from stream.rows.arrow import Place, PlacedRow
from tests.commands import neardup
from tests.unit.test_rows import directory, fields, fingerprint_batch, jsonl, table
from tests.verdict_projection import projection

pytestmark = pytest.mark.usefixtures("no_children")

COUNT = 1_200
ROWS = 512
"""Rows of a batch here, so that a scan has several."""


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.local.scan.ROWS", ROWS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pages, and their rows in files of which each has pages of the whole corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    made = fingerprint_batch(table(COUNT))
    places = list(range(COUNT))
    random.Random(0).shuffle(places)
    parts = [made.take(pa.array(sorted(places[first::3]))) for first in range(3)]
    return jsonl(folder / "pages.jsonl", COUNT), directory(folder / "rows", *parts)


def scan(*arguments: str | Path) -> Any:
    return neardup("scan", "--worker-processes", "1", *arguments)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_of_table(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(path.glob("*.parquet")):
        found += parquet.read_table(file).to_pylist()
    return found


def of_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts as records, from the columns of a table."""
    return [
        row
        | {"source": {"offset": row["source_offset"]}}
        | {"duplicate_of": {"id": row["duplicate_of_id"]} if row["duplicate_of_id"] else None}
        for row in rows
    ]


def test_verdicts_on_rows_are_those_on_their_pages(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    pages, rows = corpus
    assert scan(pages, "-o", tmp_path / "pages").exit_code == 0
    said = scan(rows, "-o", tmp_path / "rows", "--json")
    summary = json.loads(said.stdout)
    assert (summary["pages"], summary["missing"], summary["repeated"]) == (COUNT, 0, 0)
    assert {"unique", "duplicate", "recrawl", "insufficient", "rejected"} == summary["verdicts"].keys()
    expected = projection(lines(tmp_path / "pages"))
    assert expected.count(b"\n") == COUNT
    assert projection(lines(tmp_path / "rows")) == expected
    scan(rows, "-o", tmp_path / "verdicts.parquet")
    assert projection(of_table(rows_of_table(tmp_path / "verdicts.parquet"))) == expected


def test_an_index_is_continued_by_a_later_scan(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """New data against an old corpus: together they get the verdicts of one scan."""
    pages, _ = corpus
    scan(pages, "-o", tmp_path / "whole")
    made = fingerprint_batch(table(COUNT))
    old = directory(tmp_path / "old", made.slice(0, 700))
    new = directory(tmp_path / "new", made.slice(700))
    output, index = tmp_path / "verdicts.parquet", tmp_path / "index"
    for rows in (old, new):
        scan(rows, "--index", index, "-o", output)
    found = of_table(rows_of_table(output))
    for verdict in found[700:]:
        verdict["source"]["offset"] += 700
    assert projection(found) == projection(lines(tmp_path / "whole"))
    assert "0 pages" in scan(new, "--index", index, "-o", output).stderr  # all of them are judged
    assert len(rows_of_table(output)) == COUNT
    (tmp_path / "more.jsonl").write_text(json.dumps(fields(1)))
    scan(tmp_path / "more.jsonl", "--index", index, "-o", tmp_path / "more")
    assert [verdict["verdict"] for verdict in lines(tmp_path / "more")] == ["recrawl"]


def test_rows_that_are_named_twice_are_judged_and_counted_once(tmp_path: Path) -> None:
    rows = directory(tmp_path / "rows", fingerprint_batch(table(20)))
    summary = json.loads(scan(rows, rows, "--json").stdout)
    assert (summary["pages"], summary["missing"], summary["repeated"]) == (20, 0, 0)


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return lines(path)
    if path.suffix == ".parquet":
        return of_table(rows_of_table(path))
    import duckdb

    with duckdb.connect(str(path), read_only=True) as database:
        found = database.execute("FROM verdicts")
        names = [name for name, *_ in found.description]
        return of_table([dict(zip(names, row, strict=True)) for row in found.fetchall()])


def test_a_table_of_other_verdicts_is_left_alone(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    _, rows = corpus
    scan(rows, "-o", tmp_path / "verdicts.parquet")
    with pytest.raises(SettingsError, match="has verdicts of another index"):
        scan(rows, "-o", tmp_path / "verdicts.parquet")
    assert len(rows_of_table(tmp_path / "verdicts.parquet")) == COUNT


@pytest.mark.parametrize("name", ["verdicts.parquet", "verdicts.duckdb"])
def test_a_table_appears_whole_where_no_later_scan_can_complete_it(tmp_path: Path, name: str) -> None:
    page = json.dumps(fields(0))
    (tmp_path / "pages.jsonl").write_text(f"{page}\n{page}\n")
    (tmp_path / "pages.jsonl.gz").write_bytes(gzip.compress(page.encode() * 1000)[:-20])
    (tmp_path / "verdicts.parquet").mkdir()  # empty, it is no table yet
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PageError, match="damaged_source"):
        scan("--strict-sources", tmp_path / "pages.jsonl", tmp_path / "pages.jsonl.gz", "-o", tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    scan(tmp_path / "pages.jsonl", "-o", tmp_path / name)
    assert [verdict["verdict"] for verdict in read(tmp_path / name)] == ["unique", "recrawl"]


def test_rows_that_do_not_fit_are_refused(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    _, rows = corpus
    seed = tmp_path / "seed"
    seed.write_text("0123456789abcdef" * 2)
    with pytest.raises(SchemeMismatchError, match="seed_digest="):
        scan(rows, "--scheme", f"seed_file={seed}")
    with pytest.raises(SettingsError, match="only `neardup scan` and `neardup load` read them"):
        neardup("fingerprint", rows)
    with pytest.raises(SettingsError, match=rf"_neardup_rows\.json: belongs to rows; name .*, {rows}$"):
        scan(rows / "_neardup_rows.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RowsError, match="no _neardup_rows"):
        scan(tmp_path / "empty", "--format", "rows")


def test_batches_of_long_urls_end_with_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch ends follows from where it begins, so ids do not depend on where a scan was killed."""
    monkeypatch.setattr("stream.local.scan.BATCH_BYTES", 100)
    rows = [Row(Status.REJECTED, "u" * size, None) for size in (10, 99, 1, 200, 40, 40, 30, 5)]
    coming, sizes = (PlacedRow(Place(0, "", place), row, None) for place, row in enumerate(rows)), []
    while batch := scan_module._next_batch(coming):
        sizes.append([len(each.row.url or "") for each in batch])
    assert sizes == [[10, 99], [1, 200], [40, 40, 30], [5]]
