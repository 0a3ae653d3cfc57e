"""A page has one verdict and reason, whichever way it comes: as a message, in a table, as rows, in Python."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterable, Sequence
from math import inf, isfinite, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from stream import Index, Page
from stream.dashboard.lookup.comparer import Comparer
from stream.errors import PageError, SettingsError
from stream.fingerprint.row import KEY_BYTES, Row, Status
from stream.fingerprint.scheme import Scheme
from stream.messages.journal import Corpus, Rows, decode_journal
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.columns import Columns
from stream.roles.loader.records import LoadedSource, records
from stream.roles.publisher import key_of
from stream.roles.worker.backlog import Backlog, PagesTopic
from stream.rows.arrow import PlacedRow, rows_of
from stream.rows.files import RowsReader, seal
from stream.rows.fingerprint import fingerprint_batch
from stream.sources.encode import encode_page
from stream.sources.open import open_source
from stream.sources.source import Message
from stream.text.url import MAX_URL
from tests.commands import neardup
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

PAGE_BYTES = 1 << 20
SCHEME = Scheme()
URL = "http://a.example/"
FAR = 253_402_300_800_000
"""The first millisecond after the year 9999."""


class Case(NamedTuple):
    """A page, whose fields may be of any type, and what becomes of it."""

    name: str
    fields: dict[str, Any]
    status: Status = Status.REJECTED
    reason: str | None = None


def case(name: str, reason: str | None, **fields: Any) -> Case:
    """A page that has a URL and a text unless its fields say otherwise."""
    fields = {"url": URL, **fields}
    if not fields.keys() & {"html", "text", "body"}:
        fields["text"] = text(name)
    status = Status.READY if reason is None else Status.REJECTED
    content = fields.get("html") or fields.get("text") or fields.get("body") or ""
    if reason is None and len(set(content)) < 2:
        status = Status.INSUFFICIENT  # empty, or one letter again and again
    return Case(name, {key: value for key, value in fields.items() if value is not None}, status, reason)


CASES = [
    case("an ordinary page", None, fetched_at=1_700_000_000_123),
    Case("no content", {"url": URL}, reason="missing_field"),
    Case("no URL", {"text": text("no URL")}, reason="missing_field"),
    case("text and HTML", "ambiguous_content", text="a", html="<p>a"),
    case("text and body", "ambiguous_content", text="a", body=b"a"),
    case("the first time", None, fetched_at=-62_135_596_800_000),
    case("before the first time", "wrong_type", fetched_at=-62_135_596_800_001),
    case("the last time", None, fetched_at=FAR - 1),
    case("after the last time", "wrong_type", fetched_at=FAR),
    case("a time beyond 64 bits", "wrong_type", fetched_at=2**70),
    case("a time beyond what a float holds", "wrong_type", fetched_at=-(10**400)),
    case("the longest URL", None, url=URL + "x" * (MAX_URL - len(URL))),
    case("a URL whose key is longer than a message key", None, url=URL + "\U0001f600" * (MAX_URL - len(URL))),
    case("a URL that is too long", "bad_url", url=URL + "x" * MAX_URL),
    case("a URL that is longer than a message key", "bad_url", url=URL + "x" * 2 * KEY_BYTES),
    case("no host", "bad_url", url="http://"),
    case("a host that is too long", "bad_url", url="http://" + "x" * 2 * KEY_BYTES + " /"),
    case("an image", "unsupported_content", body=b"\x89PNG", content_type="image/png"),
    case("an unknown charset", "unknown_charset", body=b"a", charset="klingon-8"),
    case("a body that is too large", "too_large", body=bytes(PAGE_BYTES + 1)),
    case("a body as large as may be", None, body=b"x " * (PAGE_BYTES // 2), content_type="text/plain"),
    case("a text as large as may be", None, text="x" * PAGE_BYTES),
    case("HTML as large as may be, whose JSON is larger", None, html='"' * PAGE_BYTES),
    case("a text that is too large", "too_large", text="x" * (PAGE_BYTES + 1)),
    case("an empty text", None, text=""),
    case("an empty text beside HTML", None, text="", html=f"<p>{text('HTML')}"),
    case("empty contents", None, text="", html=""),
    case("an empty URL", "missing_field", url=""),
    case("an empty charset", None, body=text("charset").encode(), charset="", content_type=""),
    case("a text that is too large in UTF-8", "too_large", text="界" * (PAGE_BYTES // 3 + 1)),
]  # fmt: skip
"""Pages that JSON and tables can hold."""
PYTHON = [
    case("lone surrogates in a text", None, text=text("surrogates") + " \ud800"),
    case("lone surrogates in a URL", None, url=URL + "\udfff"),
    case("lone surrogates in a content type", None, content_type="text/plain\ud800"),
    case("HTML as bytes", "wrong_type", html=b"<p>a"),
    case("a text that is a list", "wrong_type", text=["a"]),
    case("a text that is an object", "wrong_type", text={"a": 1}),
    case("a body that is a string", "wrong_type", body="YQ=="),
    case("a URL that is a number", "wrong_type", url=5),
    case("a content type as bytes", "wrong_type", content_type=b"text/html"),
    case("a time that is a float", None, fetched_at=1.5),
    case("a time that is none", None, fetched_at=float("nan")),
    case("an infinite time", "wrong_type", fetched_at=float("inf")),
    case("a time that is a truth", "wrong_type", fetched_at=True),
    case("a time that is a word", "wrong_type", fetched_at="yesterday"),
    case("a charset that no JSON has", "wrong_type", charset=object()),
]
"""Pages that Python can hold."""


def page_of(each: Case) -> Page:
    return Page(**{"url": None, **each.fields})


def outcome(row: Row) -> tuple[Status, str | None]:
    """What a verdict depends on here. No page is short."""
    return Status(row.status), row.reason


def due(cases: Iterable[Case]) -> dict[str, tuple[Status, str | None]]:
    return {each.name: (each.status, each.reason) for each in cases}


def outcomes(cases: Sequence[Case], rows: Iterable[Row]) -> dict[str, tuple[Status, str | None]]:
    return {each.name: outcome(row) for each, row in zip(cases, rows, strict=True)}


def json_lines(path: Path, cases: Sequence[Case]) -> Path:

    def value(field: Any) -> Any:
        return base64.b64encode(field).decode() if isinstance(field, bytes) else field

    messages = [{name: value(field) for name, field in each.fields.items()} for each in cases]
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    return path


def scanned(source: Path, folder: Path) -> list[tuple[str, str | None]]:
    """Verdicts and reasons of a scan."""
    output = folder / "verdicts.jsonl"
    neardup("scan", source, "-o", output, "--worker-processes", "1", "--page-bytes", str(PAGE_BYTES))
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    return [(line["verdict"], line["reason"]) for line in lines]


def fingerprinted(source: Path, folder: Path) -> Path:
    neardup("fingerprint", source, "-o", folder / "rows", "--worker-processes", "1",
            "--page-bytes", str(PAGE_BYTES))  # fmt: skip
    return folder / "rows"


def read(rows: Path) -> list[PlacedRow]:
    return list(RowsReader(rows).read(SCHEME))


def loaded(rows: Iterable[PlacedRow]) -> list[str | None]:
    found = list(rows)
    source = LoadedSource("ab" * 16, Corpus("rows", len(found)))
    reasons: list[str | None] = []
    for record in records(source, SCHEME, found, 0):
        columns = decode_journal(record.value, 0)
        assert isinstance(columns, Rows)
        reasons += [columns.reason.get(row) for row in range(len(columns))]
    return reasons


class Record(NamedTuple):
    """A record of the pages topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


def streamed(messages: Sequence[Message]) -> list[Row]:
    """The rows of published messages as a worker appends them: fingerprinted, with the keys of `publish`."""
    fingerprinter = PageFingerprinter()
    backlog = Backlog(PagesTopic("cluster", "pages", "ab" * 16))
    backlog.open(0, 0)
    sent = [Record(place, key_of(each, "url"), each.value) for place, each in enumerate(messages)]
    for chunk in backlog.add(0, sent):
        backlog.begin(chunk)
        backlog.answer(chunk, [fingerprinter.message(value, PAGE_BYTES) for value in chunk.values])
    rows: list[Row] = []
    while batch := backlog.take():
        rows += (msgspec.structs.replace(each, share=None) for each in batch.rows)  # for summaries alone
    return rows


def pasted(messages: Sequence[Message]) -> list[Row]:
    comparer = Comparer()
    return [comparer.message(each.value, PAGE_BYTES) for each in messages]


def table(cases: Sequence[Case]) -> pa.Table:
    """The pages as a table. No column of it holds a time beyond 64 bits."""
    kinds = {name: pa.string() for name in ("url", "html", "text", "content_type", "charset")}
    columns = kinds | {"body": pa.binary(), "fetched_at": pa.int64()}
    return pa.Table.from_pylist([each.fields for each in cases], pa.schema(columns))


def in_64_bits(cases: Sequence[Case]) -> list[Case]:
    """The pages that a table can hold."""
    return [each for each in cases if abs(each.fields.get("fetched_at", 0)) < 2**63]


def hostile() -> pa.Table:
    """All pages that a table can hold, and one whose text is not UTF-8, for an engine."""
    pages = table(in_64_bits(CASES))
    odd = pa.table({"url": [URL], "text": pa.array([b"caf\xe9"]).view(pa.string())})
    whole = pa.concat_tables([pages, odd], promote_options="default")
    return whole.append_column("order", pa.array(range(whole.num_rows)))


def engine(pages: pa.Table) -> list[PlacedRow]:
    ordered = pages.append_column("order", pa.array(range(pages.num_rows)))
    made = [fingerprint_batch(batch, page_bytes=PAGE_BYTES) for batch in ordered.to_batches()]
    return [row for batch in made for row in rows_of(batch, SCHEME)]


def of_one_machine(pages: Path) -> list[Row]:
    """The rows that `neardup fingerprint` makes of a table."""
    return [each.row for each in read(fingerprinted(pages, pages.parent / "one-machine"))]


def test_messages(tmp_path: Path) -> None:
    source = json_lines(tmp_path / "pages.jsonl", CASES)
    messages = list(open_source(str(source)))
    assert outcomes(CASES, streamed(messages)) == due(CASES)
    assert outcomes(CASES, pasted(messages)) == due(CASES)
    reasons = [each.reason for each in CASES]
    assert [reason for _, reason in scanned(source, tmp_path)] == reasons
    rows = read(fingerprinted(source, tmp_path))
    assert outcomes(CASES, [each.row for each in rows]) == due(CASES)
    assert loaded(rows) == reasons
    assert [reason for _, reason in scanned(tmp_path / "rows", tmp_path)] == reasons
    assert outcomes(
        CASES, [each.row for each in engine(pa.table({"message": [each.value for each in messages]}))]
    ) == due(CASES)


def test_tables(tmp_path: Path) -> None:
    cases = in_64_bits(CASES)
    parquet.write_table(table(cases), tmp_path / "pages.parquet")
    assert [reason for _, reason in scanned(tmp_path / "pages.parquet", tmp_path)] == [
        each.reason for each in cases
    ]
    rows = read(fingerprinted(tmp_path / "pages.parquet", tmp_path))
    assert outcomes(cases, [each.row for each in rows]) == due(cases)
    assert outcomes(cases, [each.row for each in engine(table(cases))]) == due(cases)
    assert outcomes(cases, streamed(list(open_source(str(tmp_path / "pages.parquet"))))) == due(cases)


@pytest.mark.parametrize("cases", [CASES, PYTHON], ids=["messages", "Python"])
def test_pages_in_python(cases: list[Case]) -> None:
    pages = [page_of(each) for each in cases]
    with Index(page_bytes=PAGE_BYTES) as together, Index(page_bytes=PAGE_BYTES) as one_by_one:
        answers = list(together.add_all(pages))
        assert {each.name: answer.reason for each, answer in zip(cases, answers, strict=True)} == {
            each.name: each.reason for each in cases
        }
        assert [one_by_one.add_page(page).reason for page in pages] == [each.reason for each in cases]
        for page, each in zip(pages, cases, strict=True):
            if each.reason is not None:
                with pytest.raises(PageError, match=each.reason):
                    one_by_one.near(page)
    messages = [
        Message(encode_page(page), None if page.url is None else str(page.url), "here") for page in pages
    ]
    assert outcomes(cases, streamed(messages)) == due(cases)


UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
TIMES = [
    (pa.timestamp("ns"), [1_700_000_000_123_456_789, -1, 2**63 - 1, -(2**63) + 1, None]),
    (pa.timestamp("us"), [1_700_000_000_123_456, -1, FAR * 1000 - 1, FAR * 1000, -(2**62)]),
    (pa.timestamp("ms"), [1_700_000_000_123, -1, FAR - 1, FAR, 2**63 - 1]),
    (pa.timestamp("s"), [1_700_000_000, -1, FAR // 1000, 2**53, -(2**53)]),
    (pa.timestamp("us", "America/New_York"), [1_700_000_000_123_456, FAR * 1000]),
    (pa.timestamp("ns", "Mars/Olympus_Mons"), [1_700_000_000_123_456_789]),
    (pa.timestamp("ms", "+23:59"), [FAR - 1, -62_135_596_800_000]),
    (pa.date32(), [19_000, -1, 2_932_896, 2_932_897, 2**31 - 1, -(2**31), None]),
    (pa.date64(), [19_000 * 86_400_000, -86_400_000, FAR]),
    (pa.uint64(), [1_700_000_000_123, 2**64 - 1]),
    (pa.int32(), [-1, None]),
    (pa.float64(), [1.7e12, 1.5, float("nan"), float("inf"), 1e300]),
    (pa.float16(), [1024.0, 1.5, float("nan")]),
    (pa.string(), ["2024-02-03T04:05:06Z", "1700000000123", "9999-12-31T23:59:59-01:00"]),
    (pa.dictionary(pa.int8(), pa.string()), ["2024-02-03T04:05:06Z", "yesterday"]),
    (pa.null(), [None]),
]
"""Types of `fetched_at`, with values: of times, their numbers."""


def due_time(kind: pa.DataType, value: Any) -> Any:
    """The time of a page with this value, or the reason that rejects it."""
    if value is None or value != value:
        return None
    moment = FAR
    if isinstance(value, str):
        moment = {"2024-02-03T04:05:06Z": 1_706_933_106_000, "1700000000123": 1_700_000_000_123}.get(
            value, FAR
        )
    elif pa.types.is_timestamp(kind):
        moment = value * 1000 // UNITS[kind.unit]
    elif isfinite(value):
        moment = int(value) * (86_400_000 if kind == pa.date32() else 1)
    return moment if -62_135_596_800_000 <= moment < FAR else "wrong_type"


@pytest.mark.parametrize(("kind", "values"), TIMES, ids=[str(kind) for kind, _ in TIMES])
def test_times_of_every_type(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    number = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array(values, number).view(kind) if pa.types.is_temporal(kind) else pa.array(values, kind)
    urls = [f"{URL}{number}" for number in range(len(values))]
    pages = pa.table({"url": urls, "text": ["a"] * len(urls), "fetched_at": column})
    expected = [due_time(kind, value) for value in values]
    parquet.write_table(pages, tmp_path / "pages.parquet")
    rows = streamed(list(open_source(str(tmp_path / "pages.parquet"))))
    assert [row.reason or row.fetched_at for row in rows] == expected
    for first in (0, len(values) - 1):  # of which the columns begin within a buffer
        assert [each.row for each in engine(pages.slice(first))] == rows[first:]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
@pytest.mark.parametrize("name", ["url", "text", "html", "body", "content_type", "charset", "fetched_at"])
def test_a_string_that_is_not_utf8_costs_its_row(tmp_path: Path, kind: pa.DataType, name: str) -> None:
    strings = pa.array([b"good", b"caf\xe9", None], pa.binary()).view(pa.string())
    column = strings.dictionary_encode() if pa.types.is_dictionary(kind) else strings.cast(kind)
    columns: dict[str, Any] = {"url": [URL] * 3, "text": ["a"] * 3}
    if name in ("html", "body"):
        del columns["text"]
    pages = pa.table(columns | {name: column})
    parquet.write_table(pages, tmp_path / "pages.parquet")
    rows = streamed(list(open_source(str(tmp_path / "pages.parquet"))))
    _, odd, absent = rows
    assert (odd.status, odd.reason, odd.url) == (
        Status.REJECTED, "wrong_type", None if name == "url" else URL
    )  # fmt: skip
    assert f"$.{name}" in (odd.detail or "")
    assert absent.reason == ("missing_field" if name in ("url", "text", "html", "body") else None)
    assert [each.row for each in engine(pages)] == rows


UNFIT = [
    ("text", pa.array([["a"]]), "list<.*string>"),
    ("text", pa.array([{"a": "b"}]), "struct<a: string>"),
    ("html", pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), "map<string, string.*>"),
    ("text", pa.array([1]), "int64"),
    ("text", pa.array([True]), "bool"),
    ("text", pa.array([0]).view(pa.timestamp("ms")), r"timestamp\[ms\]"),
    ("url", pa.array([b"http://a.example/"]), "binary"),
    ("fetched_at", pa.array([1]).cast(pa.decimal128(20, 0)), r"decimal128\(20, 0\)"),
    ("fetched_at", pa.array([b"2024-02-03T04:05:06Z"]), "binary"),
    ("canonical_url", pa.array([{"href": "a"}]), "struct<href: string>"),
]


@pytest.mark.parametrize(("name", "column", "kind"), UNFIT)
def test_a_column_of_a_type_that_no_page_has_is_refused_by_name(
    tmp_path: Path, name: str, column: pa.Array, kind: str
) -> None:
    columns: dict[str, Any] = {"url": [URL], "text": ["a"], "other": [{"a": [1]}]}
    if name in ("html", "body"):
        del columns["text"]
    pages = pa.table(columns | {name: column})
    refusal = rf"column `{name}` is {kind}, not a "
    with pytest.raises(SettingsError, match=f"pages: {refusal}"):
        engine(pages)
    parquet.write_table(pages, tmp_path / "pages.parquet")
    for command in (("scan",), ("fingerprint",), ("fingerprint", "-o", str(tmp_path / "rows"))):
        with pytest.raises(SettingsError, match=rf"source .*pages\.parquet: {refusal}"):
            neardup(*command, tmp_path / "pages.parquet")
    with pytest.raises(SettingsError, match=refusal):
        next(iter(open_source(str(tmp_path / "pages.parquet"))))


@pytest.mark.parametrize(
    ("name", "column", "refusal"),
    [
        ("message", pa.array([{"url": URL}]), "struct<url: string>, not a string or bytes"),
        ("key", pa.array([[1]]), "list<.*>, not binary"),
        ("source", pa.array([b"\xff"]).view(pa.string()), "string, not string: .*UTF8"),
        ("position", pa.array(["first"]), "string, not int64"),
        ("order", pa.array([2**63], pa.uint64()), "uint64, not int64"),
    ],
)
def test_a_column_of_an_engine_that_does_not_fit_is_refused_by_name(
    name: str, column: pa.Array, refusal: str
) -> None:
    page = {"url": [URL], "text": ["a"], "order": [1]}
    with pytest.raises(SettingsError, match=f"pages: column `{name}` is {refusal}"):
        fingerprint_batch(pa.record_batch(page | {name: column}))


def test_orders_beyond_64_bits_are_the_first_and_the_last() -> None:
    times = pa.array([2**62, -(2**62), 5]).view(pa.timestamp("s"))
    pages = pa.record_batch({"url": [URL] * 3, "text": ["a"] * 3, "order": times, "fetched_at": times})
    made = fingerprint_batch(pages)
    assert made.column("order").to_pylist() == [2**63 - 1, -(2**63), 5000]
    assert made.column("reason").to_pylist() == ["wrong_type", "wrong_type", None]


@pytest.mark.parametrize("names", [("html", "text"), ("html", "body"), ("text", "body")])
@pytest.mark.parametrize("cells", [(b"a", "a"), ("a", b"a"), (b"a", b"a")])
def test_raw_bytes_beside_another_content_are_ambiguous(
    tmp_path: Path, names: tuple[str, str], cells: tuple[Any, Any]
) -> None:
    pages = pa.table({"url": [URL], **{name: [cell] for name, cell in zip(names, cells, strict=True)}})
    parquet.write_table(pages, tmp_path / "pages.parquet")
    (row,) = streamed(list(open_source(str(tmp_path / "pages.parquet"))))
    assert row.reason == "ambiguous_content"
    assert [each.row for each in engine(pages)] == [row]


def qualities(rows: Iterable[Row]) -> list[str]:
    """The qualities of rows, none of which is rejected."""
    found = list(rows)
    assert [row.reason for row in found] == [None] * len(found)
    return [str(row.quality) for row in found]


def with_quality(column: pa.Array, name: str = "quality") -> pa.Table:
    count = len(column)
    urls, texts = [f"{URL}{number}" for number in range(count)], list(map(text, range(count)))
    return pa.table({"url": urls, "text": texts, name: column})


@pytest.mark.parametrize(
    ("column", "due"),
    [
        (pa.array([0.5, None, nan, inf]), ["0.5", "None", "nan", "nan"]),
        (pa.array([0.5], pa.float32()), ["0.5"]),
        (pa.array([3, None]), ["3.0", "None"]),
        (pa.array([2**64 - 1], pa.uint64()), ["1.8446744073709552e+19"]),
        (pa.array([5]).cast(pa.decimal128(21, 2)), ["5.0"]),
        (pa.array([3, 3]).dictionary_encode(), ["3.0", "3.0"]),
        (pa.array([None]), ["None"]),
        (pa.array(["0.5", None]), ["nan", "None"]),
        (pa.array([b"caf\xe9"]).view(pa.string()), ["nan"]),
        (pa.array([True]), ["nan"]),
        (pa.array([[1.0]]), ["nan"]),
        (pa.array([{"score": 1.0}]), ["nan"]),
        (pa.array([0]).view(pa.timestamp("ms")), ["nan"]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_qualities_of_every_type(tmp_path: Path, column: pa.Array, due: list[str]) -> None:
    """A column of that name that was not named costs no page, whatever it has."""
    pages = with_quality(column)
    parquet.write_table(pages, tmp_path / "pages.parquet")
    assert qualities(streamed(list(open_source(str(tmp_path / "pages.parquet"))))) == due
    assert qualities(each.row for each in engine(pages)) == [each.replace("nan", "None") for each in due]


def test_the_column_of_qualities_may_have_another_name(tmp_path: Path) -> None:
    columns = Columns(quality="score")
    rows = [("url", "text", "quality", "score")]
    rows += [(f"{URL}{cell}", "a", "9", cell) for cell in ("0.5", "", "x")]
    with (tmp_path / "pages.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    named = list(open_source(str(tmp_path / "pages.csv"), columns=columns))
    assert qualities(streamed(named)) == ["0.5", "None", "nan"]
    assert qualities(streamed(list(open_source(str(tmp_path / "pages.csv"))))) == ["9.0"] * 3
    lines = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    named = list(open_source(str(tmp_path / "pages.jsonl"), columns=columns))
    assert qualities(streamed(named)) == ["nan"] * 3, "in JSON, a string is none"
    parquet.write_table(with_quality(pa.array([0.5]), "score"), tmp_path / "pages.parquet")
    named = list(open_source(str(tmp_path / "pages.parquet"), columns=columns))
    assert qualities(streamed(named)) == ["0.5"]
    for odd in (pa.array(["0.5"]), pa.array([True]), pa.array([[0.5]])):
        parquet.write_table(with_quality(odd, "score"), tmp_path / "odd.parquet")
        with pytest.raises(SettingsError, match=r"odd\.parquet: column `score` is .*, not a number"):
            list(open_source(str(tmp_path / "odd.parquet"), columns=columns))


def test_cells_of_csv(tmp_path: Path) -> None:
    unlike = {"body", "fetched_at"}  # and no cell tells a missing content from an empty one
    cases = [each for each in CASES if not each.fields.keys() & unlike and each.name != "no content"]
    with (tmp_path / "pages.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["url", "html", "text", "content_type", "charset"])
        writer.writeheader()
        writer.writerows(each.fields for each in cases)
    rows = streamed(list(open_source(str(tmp_path / "pages.csv"))))
    assert outcomes(cases, rows) == due(cases)
    (tmp_path / "odd.csv").write_bytes(
        b"url,text,fetched_at\nhttp://a.example/,\xc3\xa9 caf\xe9 \0,9999-99-99\n"
    )
    (row,) = streamed(list(open_source(str(tmp_path / "odd.csv"))))
    assert row.reason == "wrong_type"


def test_a_large_key_rejects_a_row_in_every_way(tmp_path: Path) -> None:
    """Of an engine that gives keys, and in rows that another program wrote."""
    keys = pa.array([b"k" * KEY_BYTES, b"k" * (KEY_BYTES + 1), None])
    pages = pa.table({"url": [URL] * 3, "text": [text(1)] * 3})
    expected = [None, "key_too_large", None]
    made = engine(pages.append_column("key", keys))
    assert [each.row.reason for each in made] == expected
    assert [each.key for each in made] == [keys[0].as_py(), None, None]
    without = fingerprint_batch(pa.record_batch({**pages.to_pydict(), "order": range(3)}))
    place = without.schema.get_field_index("key")
    rows = tmp_path / "rows"
    rows.mkdir()
    parquet.write_table(
        pa.table(without.set_column(place, without.schema.field(place), keys)), rows / "a.parquet"
    )
    seal(rows, SCHEME)
    assert [each.row for each in read(rows)] == [each.row for each in made]
    assert loaded(read(rows)) == expected
    assert [reason for _, reason in scanned(rows, tmp_path)] == expected


def test_a_saved_page_with_a_time_after_the_last_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems store years that RFC 3339 does not have."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(text(name))
    real = Path.stat

    def stat(self: Path, **options: Any) -> Any:
        found = real(self, **options)
        later = SimpleNamespace(st_mtime_ns=FAR * 1_000_000, st_size=found.st_size, st_mode=found.st_mode)
        return later if self.name == "b.txt" else found

    monkeypatch.setattr(Path, "stat", stat)
    rows = streamed(list(open_source(str(tmp_path))))
    assert [row.reason for row in rows] == [None, "wrong_type", None]
