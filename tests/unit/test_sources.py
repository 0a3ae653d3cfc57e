"""Sources yield every page once, malformed ones too, and say where a damaged file ends."""

from __future__ import annotations

import base64
import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from fastwarc.stream_io import BrotliWriter
from pyarrow import parquet

from stream.cli.options import SOURCE_FORMAT
from stream.errors import PageError, SettingsError
from stream.pages.page import Page, decode_page
from stream.sources.directory import DirectorySource
from stream.sources.encode import encode_page
from stream.sources.feed import feed
from stream.sources.jsonl import JsonlSource
from stream.sources.open import FORMATS, open_source, open_sources
from stream.sources.small import SMALL_BYTES, are_small
from stream.sources.source import Message
from stream.sources.table import ParquetSource
from stream.sources.warc import WarcSource
from tests.waiting import until

LINES = [b'{"url":"http://a.example/1","html":"<p>one"}', b"not json", b'{"text":"no url"}']
PACKS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress,
}  # fmt: skip
BODY = b"<html><body><p>hello</p></body></html>"


def decoded(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(message.value)
    if "body" in fields:
        fields["body"] = base64.b64decode(fields["body"])
    return fields


def brotli(data: bytes) -> bytes:
    out = io.BytesIO()
    with BrotliWriter(out) as writer:
        writer.write(data)
        writer.finish()
    return out.getvalue()


def warc_record(
    url: str = "http://a.example/",
    body: bytes = BODY,
    *,
    kind: str = "response",
    content_type: str = "text/html; charset=gbk",
    http: str = "",
    status: str = "200 OK",
    date: str = "2025-03-01T01:02:03Z",
) -> bytes:
    """One record; `http` holds further HTTP header lines."""
    if kind == "response":
        block = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{http}\r\n".encode() + body
        block_type = "application/http; msgtype=response"
    else:
        block, block_type = body, content_type
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: {date}\r\n"
        "WARC-Record-ID: <urn:uuid:7c0bd4a6-4a3c-4d38-9e3c-3f0b8a4f1e11>\r\n"
        f"Content-Type: {block_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def warc(path: Path, data: bytes) -> WarcSource:
    path.write_bytes(data)
    return WarcSource(str(path))


def parquet_file(columns: dict[str, list[str]]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


# JSON Lines


@pytest.mark.parametrize("suffix", ["", *PACKS])
def test_lines_pass_through_untouched_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"crawl.jsonl{suffix}"
    path.write_bytes(PACKS.get(suffix, bytes)(b"\n".join(LINES) + b"\n"))
    source = open_source(str(path))
    assert isinstance(source, JsonlSource)
    messages = list(source)
    assert [m.value for m in messages] == LINES
    assert [m.url_hint for m in messages] == ["http://a.example/1", None, None]
    assert [m.origin.rpartition(" line ")[2] for m in messages] == ["1", "2", "3"]
    assert source.bytes_read == source.total_bytes == path.stat().st_size
    assert [m.value for m in source] == LINES, "a second pass reads again"


def test_blank_lines_byte_order_mark_and_carriage_returns_are_not_part_of_messages(tmp_path: Path) -> None:
    path = tmp_path / "crawl.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + LINES[0] + b"\r\n\r\n\n" + LINES[2])
    assert [(m.value, m.origin[-6:]) for m in JsonlSource(str(path))] == [
        (LINES[0], "line 1"),
        (LINES[2], "line 4"),
    ]


def test_a_line_beyond_the_bound_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream.sources.jsonl.MAX_MESSAGE", 100)
    path = tmp_path / "crawl.jsonl"
    path.write_bytes(LINES[0] + b"\n" + b"x" * 1000)
    with pytest.raises(PageError, match=r"too_large: .*line 2"):
        list(JsonlSource(str(path)))
    path.write_bytes(b"\n".join([LINES[0], b"x" * 1000, LINES[1], b"y" * 101]))
    source = JsonlSource(str(path))
    source.strict = False
    assert [(each.value, each.place) for each in source] == [(LINES[0], "line 1"), (LINES[1], "line 3")]
    assert [(each.error, each.pages) for each in source.damages] == [
        (f"{path} line {line}: over 100 bytes", pages) for line, pages in ((2, 1), (4, 2))
    ]


def test_lines_may_end_with_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "crawl.jsonl"
    lines = [LINES[0], LINES[2], LINES[1]]
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes("\r".join(line.decode() for line in lines).encode(encoding))
        assert [(each.value, each.place) for each in open_source(str(path))] == [
            (line, f"line {number}") for number, line in enumerate(lines, 1)
        ]
    path.write_bytes(b'{"url":"u",\r"text":"x"}')
    assert len(list(open_source(str(path)))) == 1, "white space within an object"


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(gzip.compress(b"\n".join(LINES)))
    with os.fdopen(read, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        source = open_source("-")
        assert source.total_bytes is None
        assert [m.value for m in source] == LINES


# Directories


def test_a_directory_is_walked_in_order_and_urls_are_quoted(tmp_path: Path) -> None:
    for name in ("b.HTML", "a/z.md", "a/页 面.txt", "a/b/c.htm", "logo.png", "a.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode("gb18030"))
    source = DirectorySource(str(tmp_path), "https://x.example/base")
    messages = list(source)
    assert [m.url_hint for m in messages] == [
        "https://x.example/base/a/b/c.htm",
        "https://x.example/base/a/z.md",
        "https://x.example/base/a/%E9%A1%B5%20%E9%9D%A2.txt",
        "https://x.example/base/a.html",
        "https://x.example/base/b.HTML",
    ]
    assert [decoded(m)["content_type"] for m in messages[1:4]] == ["text/plain", "text/plain", "text/html"]
    assert source.passed_over == {"suffix": 1}
    assert decoded(messages[2])["body"].decode("gb18030") == "a/页 面.txt"
    assert source.bytes_read == source.total_bytes


def test_links_to_directories_are_not_followed_but_links_to_pages_are(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/a.html").write_bytes(BODY)
    (tmp_path / "pages/loop").symlink_to(tmp_path / "pages")
    (tmp_path / "pages/b.html").symlink_to("a.html")
    assert [m.url_hint for m in DirectorySource(str(tmp_path / "pages"))] == [
        f"file://localhost{tmp_path}/pages/a.html",
        f"file://localhost{tmp_path}/pages/b.html",
    ]


def test_a_saved_page_is_a_source_and_its_time_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "page.xhtml"
    path.write_bytes(BODY)
    os.utime(path, ns=(0, 1_740_790_923_456_000_000))
    (message,) = open_source(str(path))
    assert decoded(message) == {
        "url": f"file://localhost{path}",
        "body": BODY,
        "content_type": "application/xhtml+xml",
        "fetched_at": "2025-03-01T01:02:03.456Z",
    }


def test_pages_of_two_directories_have_urls_of_their_own(tmp_path: Path) -> None:
    for name in ("en/index.html", "ro/index.html"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(BODY)
    paths = [str(tmp_path / "en"), f"{tmp_path}/ro/../ro/"]

    def urls(*base_urls: str) -> list[str | None]:
        return [message.url_hint for source in open_sources(paths, base_urls=base_urls) for message in source]

    assert urls() == [f"file://localhost{tmp_path}/{name}/index.html" for name in ("en", "ro")]
    assert urls("http://en.example", "http://ro.example/x") == [
        "http://en.example/index.html",
        "http://ro.example/x/index.html",
    ]
    (tmp_path / "ro/index.html").rename(tmp_path / "ro/other.html")
    assert urls("http://a.example") == ["http://a.example/index.html", "http://a.example/other.html"]


@pytest.mark.parametrize(
    ("names", "base_urls", "said"),
    [
        (
            ["en", "ro"],
            ["http://a.example/"],
            r"sources .*/en and .*/ro: both have a page http://a.example/x",
        ),
        (["en", "ro"], ["http://a.example", "http://a.example/"], "--base-url each, in their order"),
        (["en", "en"], [], "name each page once"),
        (["en/x.html", "."], [], r"sources .* and .*en/x.html: both have a page file:.*/en/x.html"),
        (["en", "ro", "."], ["http://a.example/", "http://b.example/"], "2 for 3 sources of saved pages"),
    ],
)
def test_sources_that_would_share_urls_are_refused(
    tmp_path: Path, names: list[str], base_urls: list[str], said: str
) -> None:
    for name in ("en/x.html", "ro/x.html"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(BODY)
    with pytest.raises(SettingsError, match=said):
        open_sources([str(tmp_path / name) for name in names], base_urls=base_urls)


# Tables


def test_tables_that_hold_no_pages_are_named_with_their_columns(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,age\nAda,36\n")
    with pytest.raises(SettingsError, match=r"people\.csv: no columns `url` and .*; it has name, age"):
        list(open_source(str(tmp_path / "people.csv")))


# Web archives


def test_a_record_has_its_url_type_and_time(tmp_path: Path) -> None:
    (message,) = warc(tmp_path / "a.warc", warc_record())
    assert decoded(message) == {
        "url": "http://a.example/",
        "body": BODY,
        "content_type": "text/html; charset=gbk",
        "fetched_at": "2025-03-01T01:02:03.000Z",
    }
    assert message.origin.endswith("a.warc record at byte 0")


def test_the_canonical_url_of_the_http_header_is_told(tmp_path: Path) -> None:
    http = 'Link: </style.css>; rel=preload, </a>; rel="canonical"\r\n'
    (message,) = warc(tmp_path / "a.warc", warc_record(body=BODY, http=http))
    assert decoded(message)["canonical_url"] == "http://a.example/a"


@pytest.mark.parametrize("suffix", ["", *PACKS])
def test_only_pages_are_taken(tmp_path: Path, suffix: str) -> None:
    records = [
        warc_record("", b"software: x\r\n", kind="warcinfo", content_type="application/warc-fields"),
        warc_record("http://a.example/1"),
        warc_record("http://a.example/gone", status="404 Not Found"),
        warc_record("http://a.example/logo.png", content_type="image/png"),
        warc_record("http://a.example/again", kind="revisit"),
        warc_record("http://a.example/wet", "正文".encode(), kind="conversion", content_type="text/plain"),
        warc_record("urn:text:http://a.example/1", b"text", kind="resource", content_type="text/plain"),
        warc_record("<http://a.example/2>", content_type="Text/Plain"),
    ]
    path = tmp_path / f"crawl.warc{suffix}"
    path.write_bytes(b"".join(map(PACKS.get(suffix, bytes), records)))
    source = open_source(str(path))
    assert isinstance(source, WarcSource)
    assert [m.url_hint for m in source] == [
        "http://a.example/1",
        "http://a.example/wet",
        "http://a.example/2",
    ]
    assert source.passed_over == {"record_type": 3, "http_status": 1, "content_type": 1}
    assert source.bytes_read == source.total_bytes


def test_a_file_that_is_no_archive_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"damaged_source: .*a\.warc record at byte 0: no WARC record"):
        list(warc(tmp_path / "a.warc", b"neither\nthis\nnor that\n" * 9))


# Choosing


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("part-0001.gz", gzip.compress(b"\n\n" + LINES[0]), JsonlSource),
        ("part-0001", LINES[0], JsonlSource),
        ("CC-MAIN-0001", warc_record(), WarcSource),
        ("archive.gz", gzip.compress(warc_record()), WarcSource),
        ("x.warc.wet.gz", gzip.compress(warc_record()), WarcSource),
        ("part-0002", parquet_file({"url": ["http://a.example/"], "text": ["a"]}), ParquetSource),
    ],
)
def test_a_source_is_chosen_by_name_then_by_content(
    tmp_path: Path, name: str, data: bytes, kind: type
) -> None:
    (tmp_path / name).write_bytes(data)
    source = open_source(str(tmp_path / name))
    assert isinstance(source, kind)
    assert len(list(source)) == 1


def test_what_is_no_source_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\x00\x01")
    with pytest.raises(SettingsError, match=r"x\.bin"):
        open_source(str(tmp_path / "x.bin"))
    with pytest.raises(SettingsError, match="absent"):
        open_source(str(tmp_path / "absent.jsonl"))
    with pytest.raises(SettingsError, match="format"):
        open_source(str(tmp_path), format="warc")
    with pytest.raises(SettingsError, match="format"):
        open_source(str(tmp_path), format="xml")
    with pytest.raises(SettingsError, match="base-url"):
        open_source(str(tmp_path), base_url="x.example")


def test_the_commands_offer_the_formats_that_there_are() -> None:
    assert tuple(SOURCE_FORMAT.choices) == FORMATS


@pytest.mark.parametrize(
    "page",
    [
        Page(url="http://a.example/页", html="<p>正文 \U00020bb7", fetched_at=1_740_790_923_456),
        Page(url="u", body=bytes(range(256)), content_type="text/html; charset=big5", charset="big5"),
        Page(url="u", text="", fetched_at=-1),
        Page(url="u", text="", redirected_from="v", canonical_url="w"),
        Page(url="u", text="", quality=-0.1),
    ],
)
def test_an_encoded_page_decodes_to_itself(page: Page) -> None:
    assert decode_page(encode_page(page), 1 << 20) == page


# Reading ahead


async def test_feed_keeps_order_and_reads_only_so_far_ahead() -> None:
    read = 0

    def numbered() -> Iterator[Message]:
        nonlocal read
        for read in range(1000):
            yield Message(b"%03d" % read + bytes(97), None, "here")

    values: list[bytes] = []
    async with contextlib.aclosing(feed(numbered(), ahead=1000)) as chunks:
        async for chunk in chunks:
            assert len(chunk) <= 10
            values.extend(m.value[:3] for m in chunk)
            assert read <= len(values) + 11
    assert values == [b"%03d" % n for n in range(1000)]


async def test_feed_raises_what_reading_raised_after_what_was_read() -> None:
    def broken() -> Iterator[Message]:
        yield Message(b"1", None, "here")
        raise PageError("damaged_source", "there")

    chunks = feed(broken())
    assert len(await anext(chunks)) == 1
    with pytest.raises(PageError, match="there"):
        await anext(chunks)


async def test_a_closed_feed_lets_its_thread_end() -> None:
    async with contextlib.aclosing(feed(iter(lambda: Message(b"x", None, "here"), None))) as chunks:
        async for _ in chunks:
            break
    await until(lambda: all(thread.name != "feed" for thread in threading.enumerate()))


@pytest.mark.parametrize(
    ("names", "size", "small"),
    [
        (["a.jsonl"], SMALL_BYTES, True),
        (["a.jsonl"], SMALL_BYTES + 1, False),
        (["a.csv", "b.warc", "saved/a.html.gz"], SMALL_BYTES // 3, True),
        (["a.csv", "b.warc", "saved/a.html.gz"], SMALL_BYTES // 2, False),
        (["a.jsonl.gz"], 10, False),  # nobody knows how much it is
        (["a.parquet"], 10, False),
    ],
)
def test_small_sources_are_small_decompressed(
    names: list[str], size: int, small: bool, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"a" * size)
    opened = [
        open_source(str((tmp_path / name).parent if "/" in name else tmp_path / name)) for name in names
    ]
    assert are_small(opened) == small


def test_pipe_is_not_small() -> None:
    assert not are_small([open_source("-")])
