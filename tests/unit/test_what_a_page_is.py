"""What a page is, and why it is refused, is the same whichever way it comes."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from stream import Index, Page
from stream.fingerprint.row import Row
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.warc_record import archived_page
from stream.sources.open import open_source

URL = "http://a.example/x"
LIMIT = 1 << 20
TEXT = "The harbour authority will repair the old lighthouse on the north pier before the storms, é."
HTML = f"<html><head><meta charset=utf-8><title>t</title></head><body><p>{TEXT}</p></body></html>"
JAPANESE = "港湾局は冬の嵐が来る前に北埠頭の古い灯台を修理します。工事は月曜日に始まり、六週間かかります。"
EMPTY = HTML.replace("<title>", "<script src='a'/><title/><title>")
CDATA = HTML.replace(TEXT, f"<![CDATA[{TEXT}]]>")
RUSSIAN = "Портовое управление отремонтирует старый маяк на северном молу до зимних штормов в бухте."
LATE = f"<!--{'x' * 2000}--><meta charset=koi8-r><p>{RUSSIAN}"
FINGERPRINTER = PageFingerprinter()


class Case(NamedTuple):
    """A page as a server sends it."""

    name: str
    header: str | None
    body: bytes
    text: str | None
    """What is compared, or None if the page is refused."""
    suffix: str | None = None
    """Of a file that has the same type."""

    @property
    def reason(self) -> str | None:
        return None if self.text is not None else "unsupported_content"


PAGES = [
    Case("HTML", "text/html; charset=utf-8", HTML.encode(), TEXT, ".html"),
    Case("HTML without a type", None, HTML.encode(), TEXT),
    Case("HTML with a type that is none", "utf-8", HTML.encode(), TEXT),
    Case("HTML with anything", "*/*", HTML.encode(), TEXT),
    Case("HTML in capitals", "TEXT/HTML;CHARSET=UTF-8", HTML.encode(), TEXT),
    Case("HTML of two values", "image/png, text/html", HTML.encode(), TEXT),
    Case("XHTML", "application/xhtml+xml", EMPTY.encode(), TEXT, ".xhtml"),
    Case("CDATA", "application/xhtml+xml", CDATA.encode(), TEXT),
    Case("Latin-1 by the header", "text/html;charset=iso-8859-1", f"<p>{TEXT}".encode("latin-1"), TEXT),
    Case("UTF-16 with a mark", "text/html;charset=gbk", HTML.encode("utf-16"), TEXT, ".html"),
    Case("UTF-16 without one", "text/plain", TEXT.encode("utf-16-le"), TEXT, ".txt"),
    Case("ISO-2022-JP undeclared", "text/html", f"<p>{JAPANESE}".encode("iso2022_jp"), JAPANESE, ".html"),
    Case("a late charset", "text/html", LATE.encode("koi8-r"), RUSSIAN),
    Case("text", "text/plain", TEXT.encode(), TEXT, ".txt"),
    Case("an image", "image/png", b"\x89PNG\r\n\x1a\n\0", None),
    Case("an archive as text", "text/plain", b"PK\3\4" + bytes(99), None, ".txt"),
    Case("bytes", "application/octet-stream", HTML.encode(), None),
]  # fmt: skip


def rows(case: Case, folder: Path) -> Iterator[tuple[str, Row]]:
    fields = {"url": URL, "content_type": case.header, "body": base64.b64encode(case.body).decode()}
    message = json.dumps(fields).encode()
    yield "message", FINGERPRINTER.message(message, LIMIT)
    yield "compressed message", FINGERPRINTER.message(gzip.compress(message), LIMIT)
    yield "page in Python", FINGERPRINTER.page(Page(url=URL, body=case.body, content_type=case.header), LIMIT)
    (folder / "a.jsonl").write_bytes(message)
    cells = {"url": [URL], "body": [case.body], "content_type": pa.array([case.header], pa.string())}
    parquet.write_table(pa.table(cells), folder / "a.parquet")
    header = f"Content-Type: {case.header}\r\n" if case.header is not None else ""
    http = f"HTTP/1.1 200 OK\r\n{header}\r\n".encode() + case.body
    head = f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: {URL}\r\nWARC-Record-ID: <urn:uuid:a>\r\n"
    head += f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    archive = head.encode() + http + b"\r\n\r\n"
    (folder / "a.warc").write_bytes(archive)
    for name in ("a.jsonl", "a.parquet", "a.warc"):
        source = open_source(str(folder / name))
        read = [FINGERPRINTER.message(each.value, LIMIT) for each in source]
        assert len(read) + sum(source.passed_over.values()) == 1
        if not read:  # by its type alone, as other records are
            assert (name, dict(source.passed_over), case.text) == ("a.warc", {"content_type": 1}, None)
        yield from ((name, row) for row in read)
    found = archived_page(archive, ended=True, limit=LIMIT, where="here")
    claimed = Page(url=URL, body=found.body, content_type=found.content_type)
    yield "record that a message refers to", FINGERPRINTER.page(claimed, LIMIT)
    if case.suffix:
        (folder / f"a{case.suffix}").write_bytes(case.body)
        for each in open_source(str(folder / f"a{case.suffix}")):
            yield "saved page", FINGERPRINTER.message(each.value, LIMIT)


@pytest.mark.parametrize("case", PAGES, ids=[case.name for case in PAGES])
def test_a_page_is_the_same_whichever_way_it_comes(case: Case, tmp_path: Path) -> None:
    due = None if case.text is None else FINGERPRINTER.page(Page(url=URL, text=case.text), LIMIT)
    for way, row in rows(case, tmp_path):
        assert row.reason == case.reason, way
        if due is not None:
            assert (row.low, row.sketch) == (due.low, due.sketch), way
    with Index() as index:
        if case.text is not None:
            index.add("text", case.text)
        fields = {"url": URL, "body": case.body, "content_type": case.header}
        for answer in index.add_all([fields, Page(**fields)]):
            assert answer.reason == case.reason
            assert answer.duplicate_of in (None if case.text is None else "text", URL)
