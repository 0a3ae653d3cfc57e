"""A corpus that every way has to judge alike: several files, pages of one order key, rejected pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from stream import Columns
from stream.fingerprint.scheme import Scheme
from stream.rows.arrow import FIRST, PlacedRow
from stream.rows.files import RowsReader
from stream.stores.objects import path_of
from tests.commands import neardup
from tests.unit.test_rows import fields
from tests.unit.test_scan_rows import lines, scan
from tests.verdict_projection import projection

COUNT: Final = 600
FILES: Final = 3
TYPES: Final = {
    "url": pa.string(),
    "text": pa.string(),
    "html": pa.string(),
    "fetched_at": pa.int64(),
    "order": pa.int64(),
    "source": pa.string(),
    "position": pa.int64(),
}


class Corpus(NamedTuple):
    """Pages as files of an engine, and as messages in the order in which they are judged."""

    folder: Path
    """Parquet files, each with pages of the whole corpus, with an order key in their columns."""
    sorted_pages: Path
    """The same pages as JSON Lines, by order key, file and position."""

    @property
    def files(self) -> list[Path]:
        """The Parquet files, in the order of their names."""
        return sorted(self.folder.iterdir())


def corpus(folder: Path) -> Corpus:
    """Write the corpus."""
    pages = folder / "pages"
    pages.mkdir()
    listed = []
    for part in range(FILES):
        path = pages / f"{part}.parquet"
        found = [_page(number) for number in range(part, COUNT, FILES)]
        placed = [
            page | {"order": page.get("fetched_at"), "source": str(path), "position": position}
            for position, page in enumerate(found)
        ]
        parquet.write_table(pa.Table.from_pylist(placed, pa.schema(TYPES)), path)
        listed += [
            (FIRST if page["order"] is None else page["order"], str(path), page["position"], message)
            for page, message in zip(placed, found, strict=True)
        ]
    listed.sort(key=lambda each: each[:3])
    assert len({order for order, *_ in listed}) < COUNT / 2  # most share their order key with others
    path = folder / "sorted.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for *_, message in listed))
    return Corpus(pages, path)


def _page(number: int) -> dict[str, Any]:
    """A page without a time if it is going to be rejected: such pages have none in an order by time."""
    page = fields(number)
    if number % 50 == 2:
        return {"text": page["text"]}  # without a URL
    if number % 10 == 7:
        return {"url": page["url"]}  # without content
    return page


def seed_file(path: Path) -> Path:
    """A secret seed."""
    path.write_text("0123456789abcdef" * 2)
    return path


class Expected(NamedTuple):
    """What one machine makes of the corpus."""

    rows: list[PlacedRow]
    verdicts: bytes
    """Their projection."""


def expected(made: Corpus, folder: Path) -> Expected:
    """The rows of `neardup fingerprint`, and the verdicts of a scan of the sorted pages."""
    scan(made.sorted_pages, "-o", folder / "of-pages")
    verdicts = lines(folder / "of-pages")
    given = {verdict["verdict"] for verdict in verdicts}
    assert given == {"unique", "duplicate", "recrawl", "insufficient", "rejected"}
    command = ("fingerprint", *made.files, "--order", "fetched_at", "--worker-processes", "1")
    neardup(*command, "-o", folder / "rows", "--pages-per-file", "250")
    found = Expected(rows(folder / "rows"), projection(verdicts))
    assert verdicts_on(folder / "rows", folder) == found.verdicts
    return found


def rows(directory: Path | str, scheme: Scheme | None = None) -> list[PlacedRow]:
    """The rows of a directory, in order."""
    return list(RowsReader(path_of(str(directory))).read(scheme or Scheme()))


def verdicts_on(directory: Path | str, folder: Path, *options: str) -> bytes:
    """The projection of a scan of rows."""
    output = folder / "of-rows.jsonl"
    scan(directory, "-o", output, *options)
    return projection(lines(output))


def reasons(found: Iterable[PlacedRow]) -> set[str]:
    """Why pages were rejected."""
    return {each.row.reason for each in found if each.row.reason}


def write_named(path: Path) -> Columns:
    """Write pages under other names than those of messages, and return the names: three, of which one has no
    content."""
    table = {
        "doc_id": [7, 8, 9],
        "other.name": ["no"] * 3,
        "page": [{"body": "a b c"}, None, {"body": "d e f"}],
        "order": [1, 2, 3],
    }
    parquet.write_table(pa.table(table), path)
    return Columns(id="doc_id", text="page.body")


def check_rows_of_named(directory: Path) -> None:
    """Check the rows of these pages."""
    made = [each.row for each in rows(directory)]
    assert [row.url for row in made] == [f"id://localhost/{number}" for number in (7, 8, 9)]
    assert [row.reason for row in made] == [None, "missing_field", None]
