"""Compressed files, pipes and saved pages: all of what a source has is read, or named as damage."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard

from stream.errors import PageError, SettingsError
from stream.pages.page import PageMessageError, decode_page
from stream.sources.compressed import CountingFile
from stream.sources.open import open_source
from tests.unit.test_sources import PACKS, warc_record

pytestmark = pytest.mark.usefixtures("no_children")

ALL = [f"http://a.example/{number}" for number in range(4)]
LINES = [json.dumps({"url": url, "text": "some words"}).encode() for url in ALL]
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def urls(path: Path | str) -> list[str | None]:
    return [message.url_hint for message in open_source(str(path))]


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("padding", [b"", bytes(4), bytes(1000), bytes(1 << 17)])
@pytest.mark.parametrize("empty", [False, True])
def test_all_members_are_read_behind_padding_and_empty_ones(
    suffix: str, padding: bytes, empty: bool, tmp_path: Path
) -> None:
    pack = PACKS[suffix]
    between = padding + (pack(b"") if empty else b"") + padding
    path = tmp_path / f"pages.jsonl{suffix}"
    path.write_bytes(between.join(pack(line + b"\n") for line in LINES) + padding)
    assert urls(path) == ALL


def test_skippable_frames_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl.zst"
    path.write_bytes(
        SKIPPABLE + SKIPPABLE.join(zstandard.compress(line + b"\n") for line in LINES) + SKIPPABLE
    )
    assert urls(path) == ALL
    path.write_bytes(zstandard.compress(LINES[0]) + SKIPPABLE[:-1])
    with pytest.raises(PageError, match="damaged_source"):
        urls(path)


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("behind", [b"x", b"\r\n", b"{}\n" * 99, bytes(4) + b"x"])
def test_other_bytes_behind_the_last_member_are_damage(suffix: str, behind: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"pages.jsonl{suffix}"
    path.write_bytes(PACKS[suffix](b"\n".join(LINES) + b"\n") + behind)
    source = open_source(str(path))
    source.strict = False
    assert [message.url_hint for message in source] == ALL
    assert [each.pages for each in source.damages] == [4]


@pytest.mark.parametrize("suffix", PACKS)
def test_a_truncated_member_is_damage(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"pages.jsonl{suffix}"
    path.write_bytes(PACKS[suffix](b"\n".join(LINES) + b"\n")[:-1])
    with pytest.raises(PageError, match=rf"damaged_source: {path} after line \d"):
        urls(path)


PIPED = {
    "lines": (b"\n".join(LINES), "auto"),
    "lines in gzip": (gzip.compress(b"\n".join(LINES)), "auto"),
    "more than a pipe holds": (b"\n".join(LINES) + b"\n" * (1 << 18), "auto"),
    "an archive": (b"".join(map(warc_record, ALL)), "auto"),
    "an archive in gzip": (b"".join(gzip.compress(warc_record(url)) for url in ALL), "auto"),
    "a table": (b"url,text\n" + b"".join(f"{url},words\n".encode() for url in ALL), "csv"),
}


@pytest.mark.parametrize("name", PIPED)
@pytest.mark.parametrize("by", ["name", "descriptor"])
def test_a_pipe_is_read_once_and_whole(name: str, by: str, tmp_path: Path) -> None:
    data, kind = PIPED[name]
    if by == "name":
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writing = threading.Thread(target=path.write_bytes, args=(data,))
    else:
        reading, target = os.pipe()
        path = Path(f"/dev/fd/{reading}")
        writing = threading.Thread(target=_write, args=(target, data))
    writing.start()
    source = open_source(str(path), format=kind)
    assert source.total_bytes is None
    assert [message.url_hint for message in source] == ALL
    writing.join()
    with pytest.raises(PageError, match="can be read only once"):
        list(source)
    if by == "descriptor":
        os.close(reading)


class _Dribbling(io.BytesIO):
    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(5)


@pytest.mark.parametrize("name", [name for name, (_, kind) in PIPED.items() if kind == "auto"])
def test_a_pipe_may_have_a_few_bytes_at_a_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    begun = CountingFile(cast(BinaryIO, _Dribbling(PIPED[name][0])))
    monkeypatch.setattr("stream.sources.open.open_counting", lambda _: begun)
    assert [message.url_hint for message in open_source(str(tmp_path / "pipe"))] == ALL
    assert begun.bytes_read == len(PIPED[name][0])


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.csv", "pages.warc"])
def test_a_file_that_is_truncated_while_it_is_read_is_damaged(name: str, tmp_path: Path) -> None:
    path, many = tmp_path / name, 20_000
    record = {"csv": b"http://a/,words\n", "warc": warc_record("http://a/")}.get(name[6:], LINES[0] + b"\n")
    data = (b"url,text\n" if name.endswith("csv") else b"") + record * many
    path.write_bytes(data)
    source = open_source(str(path))
    source.strict = False
    for number, _ in enumerate(source):
        if number == 0:
            os.truncate(path, path.stat().st_size * 2 // 3)
    assert source.pages >= many // 2
    assert source.damage_count == 1
    assert "bytes, and had " in source.damages[0].error


def _write(target: int, data: bytes) -> None:
    with os.fdopen(target, "wb") as pipe:
        pipe.write(data)


def test_the_name_of_a_pipe_tells_its_format_and_an_empty_one_has_no_page(tmp_path: Path) -> None:
    for name in ("pages.parquet", "pages.jsonl"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(SettingsError, match="is a pipe, which cannot be parquet"):
        open_source(str(tmp_path / "pages.parquet"))
    open_source(str(tmp_path / "pages.jsonl"))  # is not opened before it is read
    assert urls("/dev/null") == []


@pytest.mark.parametrize("suffix", ["", ".GZ", *PACKS])
def test_a_compressed_page_is_the_page(suffix: str, tmp_path: Path) -> None:
    pack = PACKS.get(suffix.lower(), bytes)
    (tmp_path / "saved").mkdir()
    page = tmp_path / "saved" / f"a.html{suffix}"
    page.write_bytes(pack(b"<p>hello"))
    for source in (open_source(str(page), base_url="http://a.example/"),
                   open_source(str(page.parent), base_url="http://a.example/")):  # fmt: skip
        (message,) = source
        found = decode_page(message.value, 1 << 20)
        assert (found.url, found.body, found.content_type) == (
            "http://a.example/a.html",
            b"<p>hello",
            "text/html",
        )
        assert source.bytes_read == source.total_bytes
    (page.parent / "b.tar.gz").write_bytes(gzip.compress(b"no page"))
    saved = open_source(str(page.parent))
    assert (len(list(saved)), saved.passed_over) == (1, {"suffix": 1})


def test_a_compressed_page_that_is_damaged_costs_itself(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.html.gz").write_bytes(gzip.compress(b"<p>hello")[: 12 if name == "b" else None])
    source = open_source(str(tmp_path))
    source.strict = False
    assert [Path(message.file).name for message in source] == ["a.html.gz", "c.html.gz"]
    assert ["b.html.gz" in each.error for each in source.damages] == [True]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_saved_page_that_is_too_large_for_a_message_is_too_large(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.sources.directory.MAX_BODY", 1000)
    (tmp_path / f"a.html{suffix}").write_bytes(PACKS.get(suffix, bytes)(b"a" * 1001))
    (message,) = open_source(str(tmp_path))
    with pytest.raises(PageMessageError, match="too_large") as error:
        decode_page(message.value, 1 << 20)
    assert error.value.url == message.url_hint


@pytest.mark.parametrize(
    ("start", "advice"),
    [
        (
            b"filedesc://a.arc 0.0.0.0 19960923142103 text/plain 76\n1 0 Alexa Internet\n",
            "an ARC archive.*warcio",
        ),
        (gzip.compress(b"filedesc://a.arc 0.0.0.0 19960923142103 text/plain 76\n"), "an ARC archive.*warcio"),
        (b"PK\x03\x04\x14\0\0\0", "a ZIP file.*WACZ"),
        (b"archive/".ljust(257, b"\0") + b"ustar\x0000", "a TAR file.*tar -xf"),
        (gzip.compress(b"archive/".ljust(257, b"\0") + b"ustar\x0000"), "a TAR file.*tar -xf"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z file"),
        (b"Rar!\x1a\x07\0", "a RAR file"),
        (b"From: <Saved by Blink>\r\nMIME-Version: 1.0\r\n", "an MHTML page"),
        (b"Subject: a\r\nMIME-Version: 1.0\r\n", "an MHTML page"),
        (b"\x04\x22\x4d\x18abc", "LZ4.*lz4 -dc"),
        (b"ARROW1\0\0\xff\xff\xff\xff", "an Arrow file.*to_parquet"),
        (b"\xff\xff\xff\xff\xf0\0\0\0\x10\0\0\0\0\0", "an Arrow file.*to_parquet"),
        (b"Obj\x01\x04\x16avro.schema", "an Avro file"),
        (b"ORC\x08", "an ORC file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS.*git lfs pull"),
        (b"LZIP\x01", "lzip"),
        (b"\x1f\x9d\x90", "compress.*gzip -dc"),
        (b"\xff\x06\0\0sNaPpY", "Snappy"),
        (b"\x5d\0\0\x80\0", "LZMA.*xz"),
        (b"nothing that is known", "neither its name nor its content"),
    ],
)
def test_a_format_that_is_not_read_is_named_with_what_converts_it(
    start: bytes, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "pages").write_bytes(start)
    with pytest.raises(SettingsError, match=rf"(?s)pages: .*{advice}"):
        open_source(str(tmp_path / "pages"))
