"""Data sets with names of their own: their pages are those of the same data under the names of messages."""

from __future__ import annotations

import csv
import gzip
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from stream import Columns, Index
from stream.errors import PageError, SettingsError
from stream.page_rows.page_fingerprinter import PageFingerprinter, with_columns_named
from stream.pages.column_names import MOST, ColumnNames
from stream.pages.columns import NO_COLUMNS, url_of_id
from stream.pages.page import NO_CONTENT, decode_page
from stream.roles.publisher import checked
from stream.rows.fingerprint import columns_read, fingerprint_batch
from stream.sources.jsonl import LOOKED_AT
from stream.sources.open import open_source, open_sources
from stream.sources.rejections import Rejections
from stream.sources.repeated_ids import RepeatedIds
from stream.text.url import COARSEST, PLAIN, url_key
from tests.commands import neardup
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

TEXT = text(1)
URL = "http://a.example/x"


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def tabular(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def parquet_file(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path)


FORMATS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "jsonl": jsonl, "csv": tabular, "parquet": parquet_file,
}  # fmt: skip


@pytest.fixture(params=FORMATS)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[list[dict[str, Any]]], str]:
    def write(rows: list[dict[str, Any]]) -> str:
        path = tmp_path / f"data.{request.param}"
        FORMATS[request.param](path, rows)
        return str(path)

    return write


def fields(source: str, columns: Columns = NO_COLUMNS) -> list[dict[str, Any]]:
    messages = list(open_source(source, columns=columns))
    read = [json.loads(message.value) for message in messages]
    hints = [each.get("url") if isinstance(each.get("url"), str) else None for each in read]
    assert [message.url_hint for message in messages] == hints
    return read


def write_jsonl(tmp_path: Path, *lines: bytes) -> str:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def test_named_columns_are_read_in_place_of_those_of_messages(write: Any) -> None:
    """The content is the named column alone: beside `html`, it would be ambiguous."""
    path = write(
        [{"link": URL, "raw": TEXT, "html": "<p>other", "url": "http://no.example/", "charset": "x"}]
    )
    assert fields(path, Columns(url="link", text="raw")) == [{"url": URL, "text": TEXT, "charset": "x"}]
    assert fields(path, Columns(html="raw"))[0] == {
        "url": "http://no.example/", "html": TEXT, "charset": "x",
    }  # fmt: skip


def test_times_of_another_name_are_those_of_the_fetch(write: Any) -> None:
    times = {"crawled": "2026-01-02T03:04:05Z", "fetched_at": "2020-01-01T00:00:00Z"}
    path = write([{"url": URL, "text": TEXT} | times])
    (message,) = open_source(path, columns=Columns(fetched_at="crawled"))
    row = PageFingerprinter().message(message.value, 1 << 20)
    assert (row.url, row.fetched_at) == (URL, 1_767_323_045_000)
    with pytest.raises(SettingsError, match=r"--fetched-at-column other: no such column"):
        list(open_source(path, columns=Columns(fetched_at="other")))


HOSTILE_IDS = [
    *(".", "..", "...", "%2E", "%2e", "dot/", "dot/dot/", ".;", ".%3B", "a", "A", "a/", "a/b", "/a", "a//b"),
    *("a?b", "a?b&utm_source=x", "a#b", "a#!b", "a b", " a", "a ", "a+b", "a%20b", "é", "É", "e\u0301"),
    *("\0", "\n", "\t", "0", "00", "-0", "1.0", "1", "http://a/", "http://A/", "\\", "@", ":", "a:80", "~"),
]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, unique=True))
@example(HOSTILE_IDS)
def test_no_two_ids_share_a_key(ids: list[str]) -> None:
    for rules in (PLAIN, COARSEST):
        assert len({url_key(url_of_id(each), rules) for each in ids}) == len(ids)


def test_ids_of_other_types(tmp_path: Path) -> None:
    ids = [1, -5, 12345678901234567890123, 1.50, "", None, True, [1], {"a": 1}, "é"]
    path = tmp_path / "data.jsonl"
    jsonl(path, [{"id": each, "text": TEXT} for each in ids])
    read = [each.get("url") for each in fields(str(path), Columns(id="id"))]
    due = ["1", "-5", "12345678901234567890123", "1.5"]
    assert read[:4] == [f"id://localhost/{each}" for each in due]
    assert read[4:] == [None, None, True, [1], {"a": 1}, "id://localhost/%C3%A9"]


@pytest.mark.parametrize(
    ("values", "due"),
    [
        (pa.array([1, None, 2**63 - 1]), ["1", None, str(2**63 - 1)]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([1.0, float("nan"), 1.5, 1e300]), ["1", None, "1.5", str(int(1e300))]),
        (pa.array(["a", "", None]), ["a", None, None]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_ids_of_parquet(tmp_path: Path, values: pa.Array, due: list[str | None]) -> None:
    table = pa.table({"n": values, "text": [TEXT] * len(values)})
    parquet.write_table(table, tmp_path / "data.parquet")
    read = [each.get("url") for each in fields(str(tmp_path / "data.parquet"), Columns(id="n"))]
    assert read == [None if each is None else f"id://localhost/{each}" for each in due]


def test_an_id_in_arrow_that_is_no_id_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": [[1]], "text": ["a"]}), tmp_path / "data.parquet")
    with pytest.raises(SettingsError, match=r"column `n` is list<.*, not a string or an integer"):
        fields(str(tmp_path / "data.parquet"), Columns(id="n"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_nested_columns_and_those_whose_parent_is_null(tmp_path: Path, kind: str) -> None:
    rows: list[dict[str, Any]] = [
        {"m": {"at": {"u": URL}}, "d": {"t": TEXT}},
        {"m": None, "d": {"t": TEXT}},
        {"m": {"at": None}, "d": {"t": None}},
    ]
    FORMATS[kind](tmp_path / f"data.{kind}", rows)
    read = fields(str(tmp_path / f"data.{kind}"), Columns(url="m.at.u", text="d.t"))
    plain = [{name: value for name, value in each.items() if value is not None} for each in read]
    assert plain == [{"url": URL, "text": TEXT}, {"text": TEXT}, {}]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_with_a_dot_in_its_name_comes_before_a_nested_one(tmp_path: Path, kind: str) -> None:
    row: dict[str, Any] = {"m.u": URL, "text": TEXT}
    if kind != "csv":
        row["m"] = {"u": "http://no.example/"}
    FORMATS[kind](tmp_path / f"data.{kind}", [row])
    assert fields(str(tmp_path / f"data.{kind}"), Columns(url="m.u")) == [{"url": URL, "text": TEXT}]


def test_names_are_equal_whatever_their_case_unless_several_are(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"LINK,Text\n{URL},{TEXT}\n")
    assert fields(str(path), Columns(url="link")) == [{"url": URL, "text": TEXT}]
    path.write_text(f"Link,LINK,link,text\na,b,{URL},{TEXT}\n")
    assert fields(str(path), Columns(url="link")) == [{"url": URL, "text": TEXT}]
    path.write_text(f"Link,LINK,text\na,{URL},{TEXT}\n")
    with pytest.raises(SettingsError, match="2 columns 'link': Link, LINK; rename"):
        fields(str(path), Columns(url="link"))


@pytest.mark.parametrize("columns", [NO_COLUMNS, Columns(url="url")])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, columns: Columns) -> None:
    (tmp_path / "data.csv").write_text(f"url,url,text\na,{URL},{TEXT}\n")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([URL]), pa.array([TEXT])], ["url", "url", "text"])
    parquet.write_table(table, tmp_path / "data.parquet")
    for kind in ("csv", "parquet"):
        with pytest.raises(SettingsError, match="2 columns 'url'"):
            fields(str(tmp_path / f"data.{kind}"), columns)


def test_of_a_name_twice_in_an_object_the_last_counts(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, b'{"u":"http://no/","u":"http://a/","text":"a","text":"b"}')
    assert fields(path, Columns(url="u")) == [{"url": "http://a/", "text": "b"}]


def test_a_column_that_does_not_exist_is_named_with_its_option(write: Any) -> None:
    path = write([{"link": URL, "content": TEXT}])
    with pytest.raises(SettingsError) as raised:
        fields(path, Columns(url="link", text="contents"))
    assert "--text-column contents: no such column; did you mean content? it has link, content" in str(
        raised.value
    )
    with pytest.raises(SettingsError, match=r"--url-column nowhere: no such column; did you mean link\?"):
        fields(path, Columns(url="nowhere", text="content"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_that_holds_no_text_is_not_meant(tmp_path: Path, kind: str) -> None:
    row = {"url": URL, "article": {"articleBody": TEXT, "headline": "x"}, "txt": {"a": 1}}
    FORMATS[kind](tmp_path / f"data.{kind}", [row])
    with pytest.raises(SettingsError, match=r"no such column; did you mean article\.articleBody\?"):
        fields(str(tmp_path / f"data.{kind}"), Columns(text="txtt"))


def test_lines_without_a_field_are_no_mistake_while_others_have_it(tmp_path: Path) -> None:
    """The first lines wait until one has what is missing; all of them are read then."""
    page = {"url": URL, "text": TEXT}
    late = [{"text": TEXT, "link": URL}] * 5 + [page]
    jsonl(tmp_path / "late.jsonl", late)
    assert fields(str(tmp_path / "late.jsonl")) == late
    jsonl(tmp_path / "too_late.jsonl", [{"text": TEXT, "link": URL}] * LOOKED_AT + [page])
    with pytest.raises(SettingsError, match="add --url-column link"):
        fields(str(tmp_path / "too_late.jsonl"))
    jsonl(tmp_path / "nothing_like_it.jsonl", [{"text": TEXT, "n": 1}] * 3)
    with pytest.raises(SettingsError, match="no column `url`; it has text, n; add --place-ids"):
        fields(str(tmp_path / "nothing_like_it.jsonl"))


def test_of_very_many_or_very_long_names_the_first_are_kept() -> None:
    names = ColumnNames(["a", "b" * 2**20])
    assert str(names) == "a and longer names"
    names.add(f"{number}.{'c' * 300}" for number in range(3))
    names.add(str(number) for number in range(MOST * 2))
    names.add(["deep.deeper.link", "metadata.link", "other.link"])
    assert str(names).startswith("a, 0, 1, ")
    assert str(names).endswith(f", 48 and over {MOST - 50} more")
    assert names.suggested(["url", "text"], lambda field, name: True) == {
        "url": "metadata.link"
    }  # usual names are not lost
    assert len(names._names) == MOST


def test_names_in_an_object_with_a_long_name_are_not_read(tmp_path: Path) -> None:
    """Each would be as long: of a megabyte of names in an object, a terabyte."""
    row = {"r" * 2**20: dict.fromkeys(map(str, range(2**17)), 1), "text": TEXT, "link": URL}
    jsonl(tmp_path / "data.jsonl", [row])
    with pytest.raises(SettingsError, match="it has text, link and longer names; add --url-column link"):
        fields(str(tmp_path / "data.jsonl"))


def test_a_body_that_is_text_is_named_as_a_column(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, json.dumps({"url": URL, "body": TEXT}).encode())
    (message,) = open_source(path)
    row = PageFingerprinter().message(message.value, 1 << 20)
    assert row.reason == "bad_base64"
    assert (row.detail or "").endswith("a `body` that is text belongs in `text` or `html`")
    assert fields(path, Columns(text="body")) == [{"url": URL, "text": TEXT}]


def test_a_line_is_read_as_soon_as_it_is_clear(tmp_path: Path) -> None:
    """A pipe may deliver one page an hour."""
    source = open_source(
        write_jsonl(tmp_path, *[b'{"u":"http://a/","text":"a"}'] * 3), columns=Columns(url="u")
    )
    read: list[int] = []
    lines = source.lines  # type: ignore[attr-defined]

    def counted() -> Iterator[Any]:
        for number, line in enumerate(lines()):
            read.append(number)
            yield line

    source.lines = counted  # type: ignore[attr-defined]
    next(iter(source))
    assert read == [0]


def test_pages_before_damage_are_read_also_if_it_is_not_clear_yet(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"link":"http://a/","text":"a"}\n' * 3 + bytes(range(256)) * 99)
    (tmp_path / "data.jsonl.gz").write_bytes(whole[:-20])
    source = open_source(str(tmp_path / "data.jsonl.gz"))
    source.strict = False
    assert len(list(source)) >= 3
    assert source.damage_count == 1


def test_lines_that_are_no_objects_are_rejected(tmp_path: Path) -> None:
    lines = [b'{"u":"http://a/","t":"a"}', b"{", b"[1]", b"5", b"null", b"\xff", b'{"u":"http://b/","t":"b"}']
    deep = b'{"u":"http://c/","t":"c","d":' + b"[" * 100_000 + b"}"
    fingerprinter = PageFingerprinter()
    source = open_source(write_jsonl(tmp_path, *lines, deep), columns=Columns(url="u", text="t"))
    rows = [fingerprinter.message(each.value, 1 << 20) for each in source]
    assert [row.url for row in rows] == ["http://a/", *[None] * 5, "http://b/", None]
    reasons = ["malformed_json", "wrong_type", "wrong_type", "wrong_type", "malformed_json"]
    assert [row.reason for row in rows] == [None, *reasons, None, "malformed_json"]


NAMES = st.sampled_from(
    ["url", "text", "html", "body", "id", "a", "a.b", "b", "fetched_at", "warc_offset", "\xe9"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
COLUMNS = [
    NO_COLUMNS, Columns(url="a.b"), Columns(id="a.b", text="b"), Columns(html="a", url="b"), Columns(id="id"),
    Columns(text="a.b.a", id="\xe9"), Columns(url="a", text="a"),
]  # fmt: skip


def value_at(fields: Any, name: str) -> tuple[bool, Any]:
    """Whether an object has a value of that name or path, and the value."""
    if not isinstance(fields, dict):
        return False, None
    if name in fields:
        return True, fields[name]
    root, dot, rest = name.partition(".")
    return value_at(fields.get(root), rest) if dot else (False, None)


def expected(fields: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """The message by plain dictionaries."""
    content = columns.text is not None or columns.html is not None
    only = ["content_encoding", "warc_filename", "warc_offset"]
    message = {name: fields[name] for name in [*columns.fields, *([] if content else only)] if name in fields}
    for field, name in columns.names.items():
        has, value = value_at(fields, name)
        if field == "id":
            field = "url"
            if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
                value = url_of_id(str(value)) if value != "" else None
        if has:
            message[field] = value
    return message


@given(st.dictionaries(NAMES, VALUES), st.sampled_from(COLUMNS))
def test_messages_are_those_of_plain_dictionaries(row: dict[str, Any], columns: Columns) -> None:
    for ascii_only in (True, False):
        value, url = columns.message(json.dumps(row, ensure_ascii=ascii_only).encode())
        message = json.loads(value)
        assert message == expected(row, columns)
        if columns.url or columns.id:
            hint = message.get("url")
            assert url == (hint if isinstance(hint, str) else None)


def test_lone_surrogates_are_replaced_as_in_messages(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, rb'{"u":"http://a/\ud800","t":"a\udc00b","x":"\ud83d\ude00"}')
    fingerprinter = PageFingerprinter()
    (named,) = open_source(path, columns=Columns(url="u", text="t"))
    plain = fingerprinter.message(rb'{"url":"http://a/\ud800","text":"a\udc00b"}', 1 << 20)
    assert fingerprinter.message(named.value, 1 << 20) == plain


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"url": "a", "id": "b"}, "url-column, id-column: name one of them"),
        ({"text": "a", "html": "b"}, "text-column, html-column: name one of them"),
        ({"url": ""}, "url-column: an empty name"),
        ({"fetched_at": ""}, "fetched-at-column: an empty name"),
        ({"url": "link", "id_prefix": "a/"}, "id-prefix: only ids have one"),
        ({"url": "u", "place_ids": True}, "place-ids: stand in for URLs and ids"),
        ({"id": "i", "place_ids": True}, "place-ids: stand in for URLs and ids"),
    ],
)
def test_names_that_contradict_each_other_are_refused(names: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Columns(**names)


def test_sources_without_columns_refuse_names(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(b"WARC/1.0\r\n")
    (tmp_path / "a.html").write_text("<p>a")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "_neardup_rows.json").write_text("{}")
    for name, why in (("a.warc", "a web archive"), ("a.html", "saved pages"), ("rows", "rows, whose")):
        with pytest.raises(SettingsError, match=f"text-column: .*{name} is {why}"):
            open_sources([str(tmp_path / name)], columns=Columns(text="t"))
    with pytest.raises(SettingsError, match="url-column: - is a web archive"):
        open_source("-", format="warc", columns=Columns(url="u"))


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"order": list(range(2)), **columns})


def test_batches_of_engines_are_named_alike() -> None:
    plain = batch(url=["http://a/", "http://b/"], text=[TEXT, text(2)])
    named = batch(m=[{"u": "http://a/"}, {"u": "http://b/"}], content=[TEXT, text(2)], message=["chat", "x"])
    columns = Columns(url="m.u", text="content")
    assert fingerprint_batch(named, columns=columns).equals(fingerprint_batch(plain))
    assert fingerprint_batch(named.slice(1), columns=columns).equals(fingerprint_batch(plain.slice(1)))
    assert columns_read(named.schema.names, columns) == ["m", "content", "order"]
    ids = fingerprint_batch(batch(n=[7, 8], text=["a", "b"]), columns=Columns(id="n"))
    assert ids.column("url").to_pylist() == ["id://localhost/7", "id://localhost/8"]


def test_engines_are_told_the_argument() -> None:
    with pytest.raises(SettingsError, match=r"add columns=Columns\(url='link', text='content'\)$"):
        fingerprint_batch(batch(link=["a", "b"], content=["a", "b"]))
    with pytest.raises(SettingsError, match=r"^pages: columns=Columns\(text='x'\): no such column"):
        fingerprint_batch(batch(url=["a", "b"], content=["a", "b"]), columns=Columns(text="x"))


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_array_is_read(tmp_path: Path, indent: int | None) -> None:
    rows = [{"url": URL, "text": TEXT}, {"url": "http://b/", "text": TEXT}]
    for name, before in (("data.json", ""), ("data", ""), ("marked.json", "\ufeff\n\n ")):
        (tmp_path / name).write_text(before + json.dumps(rows, indent=indent))
        assert [message.place for message in open_source(str(tmp_path / name))] == ["item 1", "item 2"]
        assert fields(str(tmp_path / name)) == rows
        assert fields(str(tmp_path / name), Columns(text="text")) == rows


def test_an_array_that_does_not_end_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('[{"url":"http://a/","text":"a"},\n{"url":')
    with pytest.raises(PageError, match="a JSON array that does not end"):
        list(open_source(str(tmp_path / "data.json")))


def test_an_array_whose_items_have_lone_surrogates_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pages.json"
    path.write_text(
        '[{"url": "http://a.example/1", "text": "a\\ud800b"},\n {"url": "http://a.example/2", "text": "c"}]'
    )
    assert [json.loads(message.value)["text"] for message in open_source(str(path))] == ["a\ufffdb", "c"]


def test_lines_that_are_arrays_are_lines(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, b"", b"[1]", b"[2]", b'{"url":"http://a/","text":"a"}')
    assert [message.place for message in open_source(path)] == ["line 2", "line 3", "line 4"]


def test_objects_that_span_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"url": URL, "text": TEXT}, indent=2) * 2)
    with pytest.raises(SettingsError, match=r"span lines.*jq -c"):
        list(open_source(str(path)))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "json"])
def test_encodings_of_windows_are_read(tmp_path: Path, encoding: str, kind: str) -> None:
    rows = [{"url": URL, "text": f"é \U0001f600 {TEXT}"}, {"url": "http://b/", "text": "ж"}]
    path = tmp_path / "written"
    if kind == "json":
        path.write_text(json.dumps(rows))
    else:
        FORMATS[kind](path, rows)
    (tmp_path / f"data.{kind}").write_bytes(path.read_text().encode(encoding))
    assert fields(str(tmp_path / f"data.{kind}")) == rows
    if kind == "jsonl":
        (tmp_path / "data").write_bytes(path.read_text().encode(encoding))
        assert fields(str(tmp_path / "data")) == rows


def test_latin_1_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(f"url,text\n{URL},caf\xe9 na\xefve\n".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"not UTF-8; Latin-1 or Windows-1252, perhaps: .*iconv"):
        list(open_source(str(tmp_path / "data.csv")))
    row = PageFingerprinter().message(b'{"url":"http://a/","text":"caf\xe9"}', 1 << 20)
    assert (row.reason, (row.detail or "")[:10]) == ("malformed_json", "not UTF-8;")


def test_rows_of_other_columns_are_not_resumed(tmp_path: Path) -> None:
    jsonl(tmp_path / "data.jsonl", [{"url": URL, "a": TEXT, "b": text(2)}])
    command = ["fingerprint", tmp_path / "data.jsonl", "-o", tmp_path / "rows", "--json", "--text-column"]
    neardup(*command, "a")
    with pytest.raises(SettingsError, match="begun with columns"):
        neardup(*command, "b")
    with pytest.raises(SettingsError, match=r"begun with columns.*id_prefix"):
        neardup(*command, "a", "--id-column", "url", "--id-prefix", "x/")
    assert json.loads(neardup(*command, "a").stdout)["resumed"] == 1


WRONG = "Expected `str | null`, got `int` -"
LINES: list[tuple[dict[str, Any], Columns, str]] = [
    ({"raw": TEXT}, Columns(url="link", text="raw"), "`link` is missing; the page has `raw`"),
    ({"raw": TEXT}, Columns(id="doc", html="raw"), "`doc` is missing; the page has `raw`"),
    ({"link": URL}, Columns(url="link", text="raw"), "`raw` is missing; the page has `link`"),
    ({"link": URL}, Columns(url="link"), NO_CONTENT),
    ({"link": 5, "raw": TEXT}, Columns(url="link", text="raw"), f"{WRONG} at `$.link`"),
    ({"url": URL, "m": {"raw": 5}}, Columns(text="m.raw"), f"{WRONG} at `$.m.raw`"),
    ({"url": URL, "text": 5}, NO_COLUMNS, f"{WRONG} at `$.text`"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "columns", "detail"), LINES)
def test_details_of_rejections_name_the_columns_of_the_source(
    tmp_path: Path, line: dict[str, Any], columns: Columns, detail: str
) -> None:
    jsonl(
        tmp_path / "data.jsonl",
        [*[{"url": URL, "link": URL, "doc": "d", "raw": TEXT, "m": {"raw": TEXT}}], line],
    )
    _, message = open_source(str(tmp_path / "data.jsonl"), columns=columns)
    row = PageFingerprinter().message(message.value, 1 << 20)
    assert (with_columns_named(row, message.columns).detail or "").startswith(detail)


def test_every_command_names_the_columns_of_the_source(tmp_path: Path) -> None:
    jsonl(tmp_path / "data.jsonl", [{"doc": 1, "raw": TEXT}, {"doc": 2}, {"raw": TEXT}, {"doc": 3, "raw": 5}])
    source, columns = str(tmp_path / "data.jsonl"), Columns(id="doc", text="raw")
    options = ["--id-column", "doc", "--text-column", "raw"]
    details = [
        "`raw` is missing; the page has `doc`",
        "`doc` is missing; the page has `raw`",
        f"{WRONG} at `$.raw`",
    ]
    examples = {
        "missing_field": f"{source} line 2: {details[0]}",
        "wrong_type": f"{source} line 4: {details[2]}",
    }
    assert json.loads(neardup("scan", source, *options, "--json").stdout)["examples"] == examples
    rows = tmp_path / "rows"
    made = neardup("fingerprint", source, *options, "-o", rows, "--json").stdout
    assert json.loads(made)["examples"] == examples
    assert parquet.read_table(rows / "rows-000000.parquet").column("detail").to_pylist()[1:] == details
    shown = neardup("fingerprint", source, *options, "--json").stdout.splitlines()
    assert [json.loads(each)["detail"] for each in shown[1:]] == details
    with pytest.raises(SettingsError, match="missing_field: `raw` is missing"):
        neardup("explain", f"{source}#1", f"{source}#2", *options)
    pairs = neardup("match", "--verified", source, *options, "--json").stdout
    assert json.loads(pairs.splitlines()[-1])["batch"] == 1
    rejections = Rejections()
    list(checked(open_source(source, columns=columns), 1 << 20, rejections))
    assert rejections.examples == examples
    batches = pa.RecordBatch.from_pylist(
        [{"order": 1, "doc": 2, "raw": None}, {"order": 2, "doc": None, "raw": TEXT}]
    )
    assert fingerprint_batch(batches, columns=columns).column("detail").to_pylist() == details[:2]


def numbered(tmp_path: Path) -> list[str]:
    """Two data sets of other pages whose ids both count from 0."""
    paths = [tmp_path / name for name in ("one.jsonl", "two.jsonl")]
    for first, path in zip((0, 100), paths, strict=True):
        jsonl(path, [{"n": n, "text": text(first + n)} for n in range(4)])
    return list(map(str, paths))


@pytest.mark.night
def test_ids_that_two_data_sets_have_are_told_and_get_prefixes(tmp_path: Path) -> None:
    one, two = numbered(tmp_path)
    repeated = f"repeated ids: id://localhost/0 is {one} line 1 and {two} line 1, so"
    scanned = neardup("scan", one, two, "--id-column", "n")
    assert repeated in scanned.stderr
    assert scanned.stderr.count("repeated ids") == 1
    assert repeated in neardup("fingerprint", one, two, "--id-column", "n", "--json").stderr
    assert repeated in neardup("dedup", one, two, "--id-column", "n", "-o", tmp_path / "kept").stderr
    for path, rows, prefix in ((one, "a", ""), (two, "b", ""), (two, "c", "two/")):
        made = neardup("fingerprint", path, "-o", tmp_path / rows, "--id-column", "n", "--id-prefix", prefix)
        assert "repeated ids" not in made.stderr
    rows = [str(tmp_path / each) for each in "abc"]
    collided = neardup("scan", *rows[:2], "-o", tmp_path / "collided.csv").stderr
    assert f"repeated ids: id://localhost/0 is {one} page 1 and {two} page 1, so" in collided
    apart = neardup("scan", rows[0], rows[2], "-o", tmp_path / "apart.csv").stderr
    assert "repeated ids" not in apart
    verdicts = list(csv.DictReader((tmp_path / "apart.csv").read_text().splitlines()))
    assert [(each["verdict"], each["change"]) for each in verdicts] == [("unique", "new")] * 8
    assert verdicts[7]["url"] == "id://localhost/two%2F3"


@pytest.mark.parametrize("way", ["scan", "dedup", "rows", "pipe"])
def test_an_index_that_has_the_ids_with_other_texts_is_left_as_it_is(
    way: str, tmp_path: Path, no_children: None
) -> None:
    """Of two dumps whose ids count from 0, those of the second would take the place of the first's."""
    one, two = numbered(tmp_path)
    index = ("--index", tmp_path / "index")

    def run(path: str, *columns: str, same: tuple[str, ...] = ()) -> list[bool]:
        """Add pages, and return whether the index has those of either dump then."""
        named: tuple[str, ...] = ("--id-column", "n", *columns)
        if way == "rows":
            rows = f"{tmp_path}/rows-{Path(path).stem}{len(columns)}"
            neardup("fingerprint", path, "-o", rows, *named)
            path, named = rows, ()
        if way == "dedup":
            neardup("dedup", path, *named, *same, *index, "-o", tmp_path / "kept.jsonl")
        elif way == "pipe":
            neardup("scan", "-", *named, *same, *index, input=Path(path).read_bytes())
        else:
            neardup("scan", path, *named, *same, *index)
        with Index(tmp_path / "index") as opened:
            return [bool(opened.near(text(page))) for page in (1, 101)]

    assert run(one) == [True, False]
    refused = r"cannot be read twice" if way == "pipe" else r"has 4 of these ids with other texts, first 0 \("
    with pytest.raises(SettingsError, match=refused):
        run(two)
    with Index(tmp_path / "index") as left:
        assert len(left) == 4
    if way != "pipe":
        assert run(two, "--id-prefix", "two/") == [True, True]
        with pytest.raises(SettingsError, match=r"4 of these ids .*, first two/0 \("):
            run(one, "--id-prefix", "two/")
    assert run(two, same=("--same-pages",))[0] is False


def test_prefixes_are_part_of_ids_however_pages_come(write: Any) -> None:
    columns = Columns(id="n", id_prefix="a b/")
    path = write([{"n": 7, "text": TEXT}, {"n": 8, "text": TEXT}])
    read = [each["url"] for each in fields(path, columns)]
    made = fingerprint_batch(batch(n=[7, 8], text=[TEXT, TEXT]), columns=columns)
    assert made.column("url").to_pylist() == read == [f"id://localhost/a%20b%2F{n}" for n in (7, 8)]


SUGGESTED: list[tuple[dict[str, Any], str]] = [
    ({"link": URL, "content": TEXT}, "--url-column link --text-column content"),
    ({"doc_id": "a", "raw_content": TEXT}, "--id-column doc_id --text-column raw_content"),
    ({"url": "a", "article": TEXT}, "--text-column article"),
    ({"text": TEXT, "Source URL": URL, "id": "c"}, "--url-column 'Source URL'"),
    ({"WARC-Target-URI": URL, "raw_html": TEXT}, "--url-column WARC-Target-URI --html-column raw_html"),
    ({"text": TEXT, "metadata": {"url": URL, "n": 1}}, "--url-column metadata.url"),
    ({"url": URL, "article": {"articleBody": TEXT}, "txt": {"a": 1}}, "--text-column article.articleBody"),
    # They are tried before they are made.
    ({"text": TEXT}, "--place-ids"),
    ({"raw_content": TEXT}, "--place-ids --text-column raw_content"),
    ({"link": "/a", "uri": URL, "text": TEXT}, "--url-column uri"),
    ({"link": "/a", "key": "k", "text": TEXT}, "--id-column key"),
    ({"id": "a1", "body": "is no base64", "permalink": "/r/1"}, "--id-column id --text-column body"),
    ({"id": "a1", "body": "aXMgYmFzZTY0"}, "--id-column id"),
    ({"link": URL, "content": "", "html_content": TEXT}, "--url-column link --html-column html_content"),
]


@pytest.mark.parametrize(
    ("kind", "row", "options"),
    [(kind, *each) for kind in FORMATS for each in SUGGESTED if kind != "csv" or "." not in each[1]],
)
def test_usual_names_whose_values_will_do_are_suggested(
    tmp_path: Path, kind: str, row: dict[str, Any], options: str
) -> None:
    FORMATS[kind](tmp_path / f"data.{kind}", [row, row])
    source = str(tmp_path / f"data.{kind}")
    with pytest.raises(SettingsError) as raised:
        fields(source)
    assert str(raised.value).endswith(f"; add {options}")
    words = shlex.split(options.replace("--place-ids", "--place-ids true"))
    columns = Columns(
        **{
            option[2:].removesuffix("-column").replace("-", "_"): value
            for option, value in zip(words[::2], words[1::2], strict=True)
        }
    )
    found = [decode_page(each.value, 1 << 20) for each in open_source(source, columns=columns)]
    assert len(found) == 2


def test_the_case_of_nested_names_and_marks_around_names_do_not_matter(tmp_path: Path) -> None:
    rows = [{"Meta": {"URL": URL}, "\ufeffText ": TEXT}]
    parquet_file(tmp_path / "a.parquet", rows)
    columns = Columns(url="meta.url")
    assert fields(str(tmp_path / "a.parquet"), columns) == [{"url": URL, "text": TEXT}]
    parquet_file(tmp_path / "a.parquet", [{"m": {"ab": URL, "AB": URL}, "text": TEXT}])
    with pytest.raises(SettingsError, match="2 columns 'Ab': ab, AB; rename one of them"):
        list(open_source(str(tmp_path / "a.parquet"), columns=Columns(url="m.Ab")))
    assert fields(str(tmp_path / "a.parquet"), Columns(url="M.ab")) == [{"url": URL, "text": TEXT}]


def test_places_are_ids_of_texts_alone(write: Any) -> None:
    source = write([{"text": TEXT, "url": ""}, {"text": TEXT, "url": URL}])
    columns = Columns(place_ids=True, id_prefix="a/")
    due = [{"url": url_of_id(f"{source}#{number}", "a/"), "text": TEXT} for number in (1, 2)]
    assert fields(source, columns) == due
    assert [each.url_hint for each in open_source(source, columns=columns)] == [each["url"] for each in due]


def test_places_are_ids_only_where_there_are_places(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(TEXT)
    with pytest.raises(SettingsError, match=r"place-ids: .* is saved pages"):
        open_source(str(tmp_path / "a.html"), columns=Columns(place_ids=True))
    for refuse in (fingerprint_batch, lambda pages, columns: columns_read(pages.schema.names, columns)):
        with pytest.raises(SettingsError, match="columns: place_ids is for files"):
            refuse(batch(text=[TEXT], order=[1]), columns=Columns(place_ids=True))


def test_repeated_ids_are_noticed_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.sources.repeated_ids.SAMPLE", 64)
    ids = RepeatedIds()
    for name in ("one", "one", "two"):  # a source may be read twice
        for number in range(10_000):
            ids.add(url_of_id(str(number)), name, f"line {number}")
            assert len(ids._origins) <= 64
        assert (ids.first is None) == (name == "one")
    assert ids.first is not None
    assert ids.first.one.replace("one", "two") == ids.first.other
    ids = RepeatedIds()
    for place in ("line 1", "line 2"):
        ids.add(URL, "one", place)
        ids.add(None, "one", place)
    assert ids.first is None
