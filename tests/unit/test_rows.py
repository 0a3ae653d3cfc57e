"""Rows are what a fingerprinter makes, wherever they are made; bad pages are rows too; damage is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from stream.errors import RowsError, SchemeMismatchError, SettingsError
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.rows.arrow import TYPES, Place, batch_of, foreign, rows_of, schema
from stream.rows.files import RowsReader, seal, sorted_table, write_file
from stream.rows.fingerprint import fingerprint_batch
from stream.rows.manifest import NAME, Manifest
from tests import kills
from tests.commands import neardup
from tests.in_process_pool import InProcessPool
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

SCHEME = Scheme()
TIME = 1_700_000_000_123


def fields(number: int) -> dict[str, Any]:
    """One of a crawl of pages, some of them near-duplicates, recrawls, too short, or malformed."""
    url = f"https://www.example{number % 7}.org/news/{number}?utm_source=a"
    match number % 10:
        case 3:
            return {"url": url, "text": text(number - 1) + "!", "fetched_at": TIME - number}
        case 4:
            return {"url": fields(number - 4)["url"], "text": text(f"{number} new"), "fetched_at": TIME}
        case 5:
            return {"url": url, "text": "Loading"}
        case 6:
            return {"url": "no url", "text": text(number)}
        case 7:
            return {"url": url, "fetched_at": TIME + number}
        case 8:
            return {"url": url, "html": f"<html lang=en><body><p>{text(number)}</p></body></html>"}
        case 9:
            return fields(number - 1)
        case _:
            return {"url": url, "text": text(number), "fetched_at": TIME + 1000 * (number * 7919 % 64)}


def own_row(number: int, scheme: Scheme | None = None) -> Row:
    """The row of a page as a worker makes it, without its share, which is for summaries alone."""
    row = PageFingerprinter(scheme).message(json.dumps(fields(number)).encode(), 1 << 20)
    return msgspec.structs.replace(row, share=None)


def jsonl(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps(fields(number)) + "\n" for number in range(count)))
    return path


def table(count: int) -> pa.RecordBatch:
    rows = [fields(number) for number in range(count)]
    names = ("url", "text", "html", "fetched_at")
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.record_batch({**columns, "order": list(range(count))})


def directory(path: Path, *batches: pa.RecordBatch, scheme: Scheme = SCHEME) -> Path:
    path.mkdir()
    files = [
        write_file(path / f"rows-{number:06}.parquet", sorted_table([batch], scheme))
        for number, batch in enumerate(batches)
    ]
    Manifest.of(scheme, files).write(path)
    return path


def read(path: Path, scheme: Scheme = SCHEME) -> list[Place]:
    return [row.place for row in RowsReader(path).read(scheme)]


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def make(source: Path, output: Path, *arguments: str) -> Any:
    return neardup("fingerprint", source, "-o", output, "--worker-processes", "1", *arguments)


def test_rows_of_a_batch_are_those_of_the_fingerprinter() -> None:
    made = fingerprint_batch(table(40))
    for number, found in enumerate(rows_of(made, SCHEME)):
        assert found.row == own_row(number)
        assert found.place == (number, "", 0)
    assert made.schema.equals(schema(SCHEME), check_metadata=True)


def test_rows_of_an_older_version_are_refused_by_name(tmp_path: Path) -> None:
    rows = directory(tmp_path / "rows", fingerprint_batch(table(3)))
    described = fingerprint_batch(table(3)).schema.with_metadata({b"neardup.rows": b"3"})
    assert foreign(described, SCHEME.id) == "has format version 3, this program reads 5"
    manifest = json.loads((rows / NAME).read_text())
    (rows / NAME).write_text(json.dumps(manifest | {"version": 3}))
    with pytest.raises(RowsError, match=rf"{NAME}: format version 3, this program reads 5"):
        read(rows)


@pytest.mark.parametrize(
    "scheme", [Scheme(width=128), Scheme(width=32), Scheme(sketch="minhash", sketch_bits=2)]
)
def test_rows_survive_columns_in_every_scheme(scheme: Scheme) -> None:
    rows = [own_row(number, scheme) for number in range(20)]
    places = [Place(number, "a", 1) for number in range(20)]
    back = rows_of(batch_of(scheme, rows, places, [b"key"] * 20), scheme)
    assert [each.row for each in back] == rows
    assert {each.key for each in back} == {b"key"}


def test_types_of_tables_are_read_as_in_a_parquet_source(tmp_path: Path) -> None:
    moment = datetime(2024, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    page = f"<html><body><p>{text(1)}</p></body></html>"
    pages = pa.record_batch(
        {
            "URL": pa.array(["http://a.example/"] * 3, pa.large_string()),
            "HTML": pa.array([page.encode(), None, b"\xff"]),
            "body": pa.array([None, text(2).encode(), None]),
            "fetched_at": pa.array([moment] * 3, pa.timestamp("ns", "UTC")),
            "order": pa.array([moment] * 3, pa.timestamp("us", "UTC")),
            "position": pa.array([1, 2, 3], pa.int32()),
            "key": ["a", None, "c"],
        }
    )
    parquet.write_table(pa.Table.from_batches([pages]), tmp_path / "pages.parquet")
    told = neardup("fingerprint", "--json", tmp_path / "pages.parquet").stdout.splitlines()
    made = rows_of(fingerprint_batch(pages), SCHEME)
    assert [json.loads(line)["text_hash"] for line in told] == [
        each.row.text_hash.hex() if any(each.row.text_hash) else None for each in made
    ]
    assert {each.row.fetched_at for each in made} == {int(moment.timestamp() * 1000)}
    assert [each.place.position for each in made] == [1, 2, 3]
    assert [each.key for each in made] == [b"a", None, b"c"]


def test_bad_pages_are_rows_with_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b"{", None, b"\xff", b'{"url": 1}', json.dumps(fields(0)).encode()]
    made = fingerprint_batch(pa.record_batch({"message": messages, "order": range(5)}))
    assert made.column("reason").to_pylist()[1:] == ["empty_message", "malformed_json", "wrong_type", None]
    damaged = pa.Array.from_buffers(
        pa.string(), 2, [*pa.array([fields(0)["text"], "abcd"]).buffers()[:2], pa.py_buffer(b"\xff" * 4000)]
    )
    pages = pa.record_batch(
        [pa.array(["http://a.example/"] * 2), damaged, pa.array([0, 1])], ["url", "text", "order"]
    )
    assert fingerprint_batch(pages).column("reason").to_pylist() == ["wrong_type", "wrong_type"]

    def rows(self: PageFingerprinter, pages: Any) -> Any:
        if any("bad" in page.text for page in pages):
            raise ZeroDivisionError("by the page")
        return real(self, pages)

    real = PageFingerprinter.rows
    monkeypatch.setattr(PageFingerprinter, "rows", rows)
    texts = [text(1), "bad", text(3)]
    pages = pa.record_batch({"url": ["http://a.example/"] * 3, "text": texts, "order": range(3)})
    made = fingerprint_batch(pages)
    assert made.column("reason").to_pylist() == [None, "failed", None]
    assert made.column("detail")[1].as_py() == "ZeroDivisionError: by the page"


def test_memory_that_does_not_suffice_is_an_error_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(page: bytes) -> Any:
        raise MemoryError

    pages = pa.record_batch({"url": ["http://a.example/"], "html": ["<p>a"], "order": [0]})
    fingerprint_batch(pages)  # loads what is extracted with, by extracting
    monkeypatch.setattr("stream.text.blocks.read", read)
    with pytest.raises(MemoryError, match=r"http://a\.example/: not enough memory"):
        fingerprint_batch(pages)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"url": ["a"], "order": [1]}, "no column `html`, `text` or `body`; it has url, order"),
        ({"url": ["a"], "text": ["a"]}, "no column `order`"),
        ({"url": ["a"], "text": ["a"], "order": ["a"]}, "`order` is string"),
    ],
)
def test_tables_that_hold_no_pages_are_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        fingerprint_batch(pa.record_batch(columns))


def test_files_that_overlap_are_merged_by_place(tmp_path: Path) -> None:
    made = fingerprint_batch(table(60))
    parts = [made.take(pa.array(range(first, 60, 3))) for first in (2, 0, 1)]
    path = directory(tmp_path / "rows", *parts)
    assert read(path) == [(number, "", 0) for number in range(60)]
    assert [each.place.order for each in RowsReader(path).read(SCHEME, 55)] == [55, 56, 57, 58, 59]


def test_pages_of_one_place_are_refused(tmp_path: Path) -> None:
    made = fingerprint_batch(table(4))
    path = directory(tmp_path / "rows", made, made.slice(2, 1))
    with pytest.raises(RowsError, match="two pages have order 2, source '', position 0"):
        read(path)


def test_damage_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    made = fingerprint_batch(table(20))
    path = directory(tmp_path / "rows", made.slice(0, 10), made.slice(10))
    second, manifest = path / "rows-000001.parquet", path / NAME
    whole, listed = second.read_bytes(), manifest.read_bytes()

    def refused(match: str) -> None:
        with pytest.raises(RowsError, match=match):
            read(path)

    for at in (0, len(whole) // 2, len(whole) - 20):
        second.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused(r"rows-000001\.parquet: damaged")
    second.write_bytes(whole[:-1])
    refused(r"rows-000001\.parquet: damaged, has \d+ bytes")
    second.unlink()
    refused(r"rows-000001\.parquet: missing")
    second.write_bytes(whole)
    (path / "other.parquet").write_bytes(whole)
    refused(r"other\.parquet: not a file of these rows")
    (path / "other.parquet").unlink()
    (path / "_SUCCESS").touch()
    assert len(read(path)) == 20
    for at in range(0, len(listed), 7):
        manifest.write_bytes(listed[:at] + bytes([listed[at] ^ 4]) + listed[at + 1 :])
        if not listed[at : at + 1].isspace():
            with pytest.raises(RowsError):
                RowsReader(path)
    manifest.unlink()
    refused(f"no {NAME}, so they are not complete")
    with pytest.raises(RowsError, match=r"rows .*nowhere: no such directory$"):
        RowsReader(tmp_path / "nowhere")


def test_rows_of_another_scheme_or_seed_are_refused_by_the_option(tmp_path: Path) -> None:
    path = directory(tmp_path / "rows", fingerprint_batch(table(4)))
    with pytest.raises(SchemeMismatchError, match=r"shingle=5 \(not 4\)$"):
        read(path, Scheme(shingle=4))
    with pytest.raises(SchemeMismatchError, match=r"seed_digest=.*`neardup topics seed`"):
        read(path, SCHEME.with_seed(b"0123456789abcdef"))


def test_what_an_engine_wrote_is_sealed(tmp_path: Path) -> None:
    """Engines drop the metadata of a schema, and leave empty and hidden files."""
    made = pa.Table.from_batches([fingerprint_batch(table(30))]).replace_schema_metadata(None)
    for name, part in (("b", made.slice(0, 9)), ("a", made.slice(9)), ("c", made.slice(0, 0))):
        parquet.write_table(part, tmp_path / f"{name}.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert seal(tmp_path, SCHEME).rows == 30
    assert read(tmp_path) == [(number, "", 0) for number in range(30)]
    with pytest.raises(RowsError, match=rf"[abc]\.parquet: has scheme {SCHEME.id}, not"):
        seal(tmp_path, Scheme(shingle=4))
    parquet.write_table(made.take(list(reversed(range(30)))), tmp_path / "b.parquet")
    with pytest.raises(RowsError, match=r"b\.parquet: not sorted, order 28, .* comes after order 29"):
        seal(tmp_path, SCHEME)
    parquet.write_table(made.drop_columns("sketch"), tmp_path / "b.parquet")
    with pytest.raises(RowsError, match=r"b\.parquet: has no column `sketch`"):
        seal(tmp_path, SCHEME)
    binary = [b"\xff"] * made.num_rows
    parquet.write_table(
        made.set_column(1, "source", pa.array(binary).view(pa.string())), tmp_path / "b.parquet"
    )
    with pytest.raises(RowsError, match=r"b\.parquet: damaged: .*[Ii]nvalid UTF8"):
        seal(tmp_path, SCHEME)
    with pytest.raises(RowsError, match=r"missing: No such file"):
        seal(tmp_path / "missing", SCHEME)


@pytest.mark.parametrize("name", ["order", "source", "position", "status", "length", "language", "scheme"])
def test_nulls_in_columns_that_every_row_has_are_refused(tmp_path: Path, name: str) -> None:
    """An engine's columns are nullable."""
    rows = fingerprint_batch(table(4)).to_pylist()
    rows[2][name] = None
    made = pa.Table.from_pylist(rows, pa.schema(TYPES))
    parquet.write_table(made, tmp_path / "a.parquet")

    def sealed_and_read() -> None:
        seal(tmp_path, SCHEME)
        read(tmp_path)

    with pytest.raises(RowsError, match=f"column `{name}` has nulls"):
        sealed_and_read()


def test_files_before_the_first_wanted_row_are_not_read(tmp_path: Path) -> None:
    made = fingerprint_batch(table(60))
    path = directory(tmp_path / "rows", made.slice(0, 20), made.slice(20, 20), made.slice(40))
    first = path / "rows-000000.parquet"
    first.write_bytes(bytes(first.stat().st_size))
    for start in (20, 33, 59):
        reader = RowsReader(path)
        assert [each.place.order for each in reader.read(SCHEME, start)] == list(range(start, 60))
        assert reader.bytes_read == sum(each.bytes for each in reader.manifest.files)
    with pytest.raises(RowsError, match=r"rows-000000\.parquet: damaged"):
        list(RowsReader(path).read(SCHEME, 19))


def test_a_sketch_of_more_shingles_than_there_are_is_refused(tmp_path: Path) -> None:
    rows = fingerprint_batch(table(4)).to_pylist()
    rows[1]["sketch"] = rows[1]["sketch"][:240] + bytes([255] * 72)
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema(TYPES)), tmp_path / "a.parquet")
    seal(tmp_path, SCHEME)
    with pytest.raises(RowsError, match="a sketch of 18446744073709551615 shingles"):
        read(tmp_path)


def test_the_command_writes_rows_of_all_pages_in_the_order_of_the_input(tmp_path: Path) -> None:
    source, output = jsonl(tmp_path / "pages.jsonl", 100), tmp_path / "rows"
    said = make(source, output, "--pages-per-file", "30", "--json")
    found = json.loads(said.stdout)
    assert (found["rows"], found["files"], found["resumed"]) == (100, 4, 0)
    assert found["statuses"]["rejected"] == sum(found["reasons"].values()) == 20
    rows = list(RowsReader(output).read(SCHEME))
    assert [row.place for row in rows] == [(number, str(source), number) for number in range(100)]
    for number, row in enumerate(rows):
        assert row.row == own_row(number)
    assert output.stat().st_mode & 0o77 == 0
    assert "100 rows in" in make(source, output, "--pages-per-file", "30").stderr  # complete: nothing to do


def test_rows_by_time_are_sorted_files(tmp_path: Path) -> None:
    source, output = jsonl(tmp_path / "pages.jsonl", 100), tmp_path / "rows"
    make(source, output, "--pages-per-file", "30", "--order", "fetched_at")
    rows = list(RowsReader(output).read(SCHEME))
    assert len(rows) == 100
    assert [row.row.fetched_at or -(2**63) for row in rows] == [row.place.order for row in rows]
    assert rows == sorted(rows, key=lambda row: row.place)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    source, output = jsonl(folder / "pages.jsonl", 100), folder / "rows"
    make(source, output, "--pages-per-file", "30")
    return source, output


@pytest.mark.parametrize("failpoint", ["rows.file", "rows.file:3", "rows.file:4", "rows.manifest"])
def test_a_run_killed_anywhere_is_resumed_with_the_same_bytes(
    tmp_path: Path, failpoint: str, uninterrupted: tuple[Path, Path]
) -> None:
    (source, whole), killed = uninterrupted, tmp_path / "killed"
    constants = {"stream.local.scan.ChildPool": InProcessPool}
    arguments = ("fingerprint", source, "-o", killed, "--pages-per-file", "30")
    kills.killed(failpoint, kills.command, constants, *arguments)
    with pytest.raises(RowsError, match="not complete"):
        RowsReader(killed)
    (killed / ".neardup-0123.part").write_bytes(b"of a write that was killed")
    found = json.loads(make(source, killed, "--pages-per-file", "30", "--json").stdout)
    assert found["resumed"] == {"rows.file": 30}.get(failpoint, 90)
    assert contents(killed) == contents(whole)


def test_another_run_does_not_go_on_with_these_rows(tmp_path: Path) -> None:
    source, output = jsonl(tmp_path / "pages.jsonl", 10), tmp_path / "rows"
    make(source, output)
    for arguments, said in (
        (["--order", "fetched_at"], r'begun with order "position", not "fetched_at"'),
        (["--scheme", "shingle=4"], "begun with scheme"),
    ):
        with pytest.raises(SettingsError, match=said):
            make(source, output, *arguments)
    with pytest.raises(SettingsError, match="begun with sources"):
        make(jsonl(source, 11), output)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").touch()
    with pytest.raises(SettingsError, match=r"not empty, it has letter"):
        make(source, other)
    with pytest.raises(SettingsError, match="named twice"):
        neardup("fingerprint", source, source, "-o", tmp_path / "twice")


def test_a_page_takes_at_most_340_bytes(tmp_path: Path) -> None:
    pages = {
        "url": [f"https://www.example{n % 37}.org/{n * 7919 % 100_003}/{n}.html" for n in range(2000)],
        "text": [text(n, 600) for n in range(2000)],
        "fetched_at": [TIME + n * 7919_000 % 86_400_000 for n in range(2000)],
        "order": list(range(2000)),
    }
    path = directory(tmp_path / "rows", fingerprint_batch(pa.record_batch(pages)))
    (file,) = RowsReader(path).manifest.files
    assert file.bytes / file.rows <= 340
    assert set(TYPES) == set(parquet.read_schema(path / file.name).names)
