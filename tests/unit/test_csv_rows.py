"""Rows of CSV in all its dialects, and how they are copied."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import PageError, SettingsError
from stream.pages.page import decode_page
from stream.sources import csv_rows
from stream.sources.csv_rows import CsvRows
from stream.sources.open import open_source

DIALECTS: list[tuple[str, bytes, list[Any]]] = [
    ("commas.csv", b"url,text\r\nu,a;b|c\td\r\n", [("line 2", "a;b|c\td")]),
    ("semicolons.csv", b"url;text\nu;a,b\n", [("line 2", "a,b")]),
    ("tabs.csv", b"url\ttext\nu\ta,b\n", [("line 2", "a,b")]),
    ("bars.csv", b"url|text\nu|a,b", [("line 2", "a,b")]),
    ("commas.tsv", b"url,text\nu,a\n", [("line 2", "a")]),
    ("for-excel.csv", b"sep=;\r\nurl;text\r\nu;a\r\n", [("line 3", "a")]),
    ("behind-empty-lines.csv", b"\r\n\nurl,text\nu,a\n\n,\nu,b\n", [("line 4", "a"), ("line 7", "b")]),
    ("marked.csv", codecs.BOM_UTF8 + b'"url","text"\n"u","a"\n', [("line 2", "a")]),
    ("utf-16.csv", "url\ttext\r\nu\t\u6e2f\r\n".encode("utf-16"), [("line 2", "\u6e2f")]),
    ("returns.csv", b"url,text\ru,a\ru,b", [("line 2", "a"), ("line 3", "b")]),
    ("a-return-in-a-cell.csv", b"url,text\nu,a\rb\nu,c\n", [("line 2", "a b"), ("line 3", "c")]),
    ("a-return-at-the-end.csv", b"url,text\nu,a\rb", [("line 2", "a b")]),
    ("a-return-in-a-cell.tsv", b"url\ttext\nu\ta\rb\nu\tc\n", [("line 2", "a\rb"), ("line 3", "c")]),
    ("zero-bytes.csv", b"url,text\nu,a\0b\n", [("line 2", "a\0b")]),
    ("nulls.csv", b"url,text,fetched_at\nu,a,\\N\n", [("line 2", "a")]),
    ("short-rows.csv", b"text,url\na,u\nb\n", [("line 2", "a"), ("line 3", "missing_field")]),
    (
        "surplus-cells.csv",
        b"url,text,fetched_at\nu,a, b,c,0\nu,d,0,,\n",
        [("line 2", "a, b,c"), ("line 3", "d")],
    ),
    ("surplus-at-the-end.csv", b"url,text\nu,a,b\n", [("line 2", "a,b")]),
    ("no-text.csv", b"text,url\n,u\n", [("line 2", "")]),
    ("lines-in-cells.csv", b'url,text\nu,"a\nb, ""c"""\nu,d\n', [("line 3", 'a\nb, "c"'), ("line 4", "d")]),
    ("marks-in-cells.csv", b'url,text\nu,a "b" c\nu,d\n', [("line 2", 'a "b" c'), ("line 3", "d")]),
    (
        "escaped-marks.csv",
        b'url,text\nu,"a \\"b\\", c"\nu,"d\\""\nu,"e \\"f\\"\ng, h"\nu,"i ""j"""\nu,k\n',
        [
            ("line 2", 'a "b", c'),
            ("line 3", 'd"'),
            *(("line 5", 'e "f"\ng, h'), ("line 6", 'i "j"'), ("line 7", "k")),
        ],
    ),
    (
        "backslashes.csv",
        b'url,text\nu,"c:\\d\\"\nu,"\\\\ \\"b\\" \\\\"\nu,"a"b\nu,c\n',
        [("line 2", "c:\\d\\"), ("line 3", '\\\\ "b" \\\\'), ("line 4", "ab"), ("line 5", "c")],
    ),
    (
        "escaped-and-unclosed.csv",
        b'url,text\nu,"\\"a"\nu,"b\nu,c\n',
        [("line 2", '"a'), "line 3: a quotation mark"],
    ),
    ("delimiters-in-a-name.csv", b'url,text,"a;b;c;d"\nu,a,1\n', [("line 2", "a")]),
    ("empty.csv", b"", []),
    ("a-mark-alone.tsv", codecs.BOM_UTF8, []),
    ("unclosed.csv", b'url,text\nu,a\nu,"b\nu,c\n', [("line 2", "a"), "line 3: a quotation mark"]),
    (
        "lines-in-cells.tsv",
        b'url\ttext\r\nu\t"a\r\nb\tc"\r\nu\td\r\n',
        [("line 3", "a\r\nb\tc"), ("line 4", "d")],
    ),
    (
        "a-mark-begins.tsv",
        b'url\ttext\nu\t"a\nu\tb\nu\t"c\n',
        [("line 2", '"a'), ("line 3", "b"), ("line 4", '"c')],
    ),
    (
        "a-quotation-begins.tsv",
        b'url\ttext\nu\t"a" b\nu\tc "d"\n',
        [("line 2", '"a" b'), ("line 3", 'c "d"')],
    ),
    (
        "marks-of-others.tsv",
        b'url\ttext\nu\t"a\nu\tb "c" d\nu\te"\n',
        [("line 2", '"a'), ("line 3", 'b "c" d'), ("line 4", 'e"')],
    ),
    ("doubled.tsv", b'url\ttext\nu\t"""a"" b"\nu\t""\n', [("line 2", '"a" b'), ("line 3", "")]),
]


@pytest.mark.parametrize(("name", "data", "due"), DIALECTS, ids=[name for name, _, _ in DIALECTS])
def test_every_dialect_is_read(tmp_path: Path, name: str, data: bytes, due: list[Any]) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    source = open_source(str(path))
    source.strict = False
    found: list[Any] = []
    for message in source:
        try:
            found.append((message.place, decode_page(message.value, 1 << 20).text))
        except PageError as error:
            found.append((message.place, error.reason))
    damage = [each for each in due if isinstance(each, str)]
    assert found == [each for each in due if not isinstance(each, str)]
    assert [each.error.startswith(f"{path} {damage[0]}") for each in source.damages] == [True] * len(damage)


def test_a_line_that_no_message_can_have_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end first: zero bytes that compress to nothing would take all memory."""
    monkeypatch.setattr(csv_rows, "MAX_MESSAGE", 1000)
    (tmp_path / "a.csv").write_text(f"url,text\nu,{'a' * 997}\nu,{'a' * 998}\nu,a\n")
    source = open_source(str(tmp_path / "a.csv"))
    source.strict = False
    assert [each.place for each in source] == ["line 2"]
    assert [each.error for each in source.damages] == [f"{tmp_path}/a.csv line 3: over 1000 characters"]


def test_a_column_whose_name_is_in_other_letters_is_missed_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Body,address\nno base64,a\n")
    with pytest.raises(SettingsError, match="has Body, address"):
        list(open_source(str(tmp_path / "a.csv")))


CELLS = st.text(st.sampled_from("ab\"\n\r\t,;| '"), max_size=6)


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=4),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_a_writer_wrote_is_read_again(
    rows: list[tuple[str, str]], delimiter: str, end: str, quoting: Any
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("url", "text", "more"), *((*row, "x") for row in rows)])
    read = CsvRows(io.StringIO(file.getvalue(), newline="\n"), "pages.csv")
    found = list(read)
    spaced = [tuple(cell.replace("\r", " ") for cell in row) for row in rows]
    assert [tuple(cell.replace("\r", " ") for cell in row.cells[:2]) for row in found] == spaced
    assert read.header + "".join(row.stored for row in found) == file.getvalue()
