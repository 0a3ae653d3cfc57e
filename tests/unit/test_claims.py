"""Claim checks: pages are read from archives below one root, and nothing outside it is."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from stream.pages.outside.claims import Archive
from stream.pages.outside.errors import FetchNeededError, UnavailableError
from stream.pages.outside.outside import Outside
from stream.pages.page import Page, PageMessageError, decode_page
from tests.unit.test_sources import warc_record

URL = "http://example.com/news"
LIMIT = 1 << 20
HTML = b"<html><body><p>The harbour authority will repair the old lighthouse.</p></body></html>"


def record(body: bytes = HTML, http: str = "", kind: str = "response") -> bytes:
    date = "2026-01-02T03:04:05Z"
    return warc_record(URL, body, kind=kind, content_type="text/html", http=http, date=date)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with an archive of each compression, whose second record is claimed."""
    place = tmp_path / "store"
    (place / "2026").mkdir(parents=True)
    other = record(b"another page")
    for name, pack in (
        ("a.warc", bytes),
        ("a.warc.gz", gzip.compress),
        ("a.warc.zst", zstandard.compress),
    ):
        (place / "2026" / name).write_bytes(pack(other) + pack(record()) + pack(other))
        (tmp_path / f"{name}.offset").write_text(str(len(pack(other))))
    return place


def claim(root: Path | str, limit: int = LIMIT, **fields: Any) -> Page:
    outside = Outside(claim_root=str(root))
    value = json.dumps({"url": URL, **fields}).encode()
    for fetched in range(100):
        try:
            page = decode_page(value, limit, outside)
        except FetchNeededError as wanted:
            wanted.fetch()
        else:
            assert fetched, "nothing is opened in the page's time"
            return page
    raise AssertionError("wants more and more")


def reason(root: Path, offset: int = 0, limit: int = LIMIT, **fields: Any) -> str:
    with pytest.raises(PageMessageError) as error:
        claim(root, limit, warc_offset=offset, **fields)
    assert error.value.url == URL
    return error.value.reason


def reason_at_once(root: Path, **fields: Any) -> str:
    """The reason of a claim that is refused without reading the store."""
    with pytest.raises(PageMessageError) as error:
        decode_page(
            json.dumps({"url": URL, **fields}).encode(),
            LIMIT,
            Outside(claim_root=str(root)),
        )
    return error.value.reason


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
def test_the_record_at_the_offset_is_the_page(root: Path, name: str) -> None:
    offset = int((root.parent / f"{name}.offset").read_text())
    page = claim(root, warc_filename=f"2026/{name}", warc_offset=offset)
    assert (page.url, page.body, page.content_type, page.fetched_at) == (
        URL, HTML, "text/html", 1_767_323_045_000,
    )  # fmt: skip


@pytest.mark.parametrize("size", [10, 300_000])
def test_records_of_an_archive_with_its_dictionary_are_read(size: int, root: Path) -> None:
    samples = [HTML[start : start + 40] for start in range(0, len(HTML) - 40, 2)] * 9
    dictionary = zstandard.train_dictionary(500, samples)
    content, compressor = dictionary.as_bytes(), zstandard.ZstdCompressor(dict_data=dictionary)
    body = HTML + os.urandom(size)
    first, second = compressor.compress(record(HTML)), compressor.compress(record(body))
    start = b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content
    (root / "a.warc.zst").write_bytes(start + first + second)
    assert claim(root, warc_filename="a.warc.zst", warc_offset=len(start)).body == HTML
    assert claim(root, warc_filename="a.warc.zst", warc_offset=len(start + first)).body == body
    (root / "b.warc.zst").write_bytes(start[:4] + b"\xff" * 4 + start[8:] + first)
    assert reason(root, len(start), warc_filename="b.warc.zst") == "claim_damaged"


def test_what_the_message_says_of_the_page_goes_before_the_archive(root: Path) -> None:
    told = {"content_type": "text/plain", "charset": "latin-1", "fetched_at": 5}
    page = claim(root, warc_filename="2026/a.warc.gz", warc_offset=0, **told)
    assert (page.content_type, page.charset, page.fetched_at) == ("text/plain", "latin-1", 5)


def test_content_encodings_of_the_response_are_undone_within_the_limit(root: Path) -> None:
    packed = record(gzip.compress(HTML), "Content-Encoding: gzip\r\n")
    (root / "b.warc.gz").write_bytes(gzip.compress(packed))
    assert claim(root, warc_filename="b.warc.gz", warc_offset=0).body == HTML
    bomb = record(gzip.compress(bytes(LIMIT * 4)), "Content-Encoding: gzip\r\n")
    (root / "bomb.warc").write_bytes(bomb)
    assert reason(root, warc_filename="bomb.warc") == "too_large"
    (root / "large.warc.gz").write_bytes(gzip.compress(record(bytes(LIMIT * 4))))
    assert reason(root, warc_filename="large.warc.gz") == "too_large"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.warc",
        "2026/../../secret.warc",
        "/etc/passwd",
        "",
        "2026//a.warc",
        "./a.warc",
        "2026/",
        "a\0b",
    ],
)
def test_a_name_that_could_lead_out_is_refused_before_anything_is_opened(root: Path, name: str) -> None:
    (root.parent / "secret.warc").write_bytes(record())
    assert reason_at_once(root, warc_filename=name, warc_offset=0) == "bad_claim"


def test_symbolic_links_and_special_files_are_refused(root: Path) -> None:
    (root.parent / "secret.warc").write_bytes(record())
    (root / "link.warc").symlink_to(root.parent / "secret.warc")
    (root / "inside.warc").symlink_to(root / "2026" / "a.warc")
    (root / "out").symlink_to(root.parent)
    os.mkfifo(root / "pipe.warc")
    for name in ("link.warc", "inside.warc", "out/secret.warc", "pipe.warc", "2026", "2026/a.warc/b"):
        assert reason(root, warc_filename=name) == "bad_claim", name
    assert reason(root, warc_filename="n" * 300) == "bad_claim"


def test_a_damaged_record_is_refused(root: Path) -> None:
    whole = gzip.compress(record(HTML * 50))
    (root / "cut.warc.gz").write_bytes(whole[: len(whole) // 2])
    broken = bytearray(whole)
    broken[len(whole) // 2 : len(whole) // 2 + 8] = b"\xff" * 8
    (root / "broken.warc.gz").write_bytes(broken)
    (root / "cut.warc").write_bytes(record()[:-40])
    (root / "noise.warc").write_bytes(b"neither a record nor a member of one\n" * 20)
    (root / "empty.warc").write_bytes(b"")
    for name in ("cut.warc.gz", "broken.warc.gz", "cut.warc", "noise.warc", "empty.warc"):
        assert reason(root, warc_filename=name) == "claim_damaged", name
    assert reason(root, 7, warc_filename="2026/a.warc.gz") == "claim_damaged"
    assert reason(root, 10**9, warc_filename="2026/a.warc") == "claim_damaged"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("size", [1, 100_000, 131_072, 600_000, LIMIT])
def test_records_of_any_size_are_read_in_steps(root: Path, pack: Callable[[bytes], bytes], size: int) -> None:
    body = os.urandom(size)
    packed = pack(record(body))
    (root / "sizes.warc").write_bytes(pack(record(b"before")) + packed + pack(record(b"behind")) * 3000)
    place = len(pack(record(b"before")))
    assert claim(root, limit=2 * LIMIT, warc_filename="sizes.warc", warc_offset=place).body == body
    (root / "cut.warc").write_bytes(packed[: len(packed) * 2 // 3])
    assert reason(root, 0, 2 * LIMIT, warc_filename="cut.warc") == "claim_damaged"


def test_no_more_is_read_than_the_largest_page_takes(root: Path) -> None:
    empty = b"\0\0\0\xff\xff"  # a stored block of deflate that holds nothing
    head = gzip.compress(b"")[:10]
    (root / "empty.warc.gz").write_bytes(head + empty * LIMIT)
    assert reason(root, warc_filename="empty.warc.gz") == "too_large"
    (root / "header.warc").write_bytes(b"WARC/1.0\r\n" + b"X: y\r\n" * LIMIT)
    assert reason(root, warc_filename="header.warc") == "claim_damaged"


@pytest.mark.parametrize("offset", [2**61, 2**63, 2**64, 10**30])
def test_an_offset_beyond_every_file_is_the_claims_fault(root: Path, offset: int) -> None:
    """Such a page is rejected; were it taken for a failure of the store, the page would wait."""
    assert reason(root, offset, warc_filename="2026/a.warc") == "claim_damaged"


def test_a_claim_must_be_whole_and_alone(root: Path) -> None:
    assert reason_at_once(root, warc_filename="2026/a.warc") == "missing_field"
    assert reason_at_once(root, warc_filename="2026/a.warc", warc_offset=-1) == "bad_claim"
    assert reason_at_once(root, warc_filename="2026/a.warc", warc_offset=0, text="x") == "ambiguous_content"
    assert reason(root, warc_filename="2026/none.warc") == "claim_not_found"
    (root / "request.warc").write_bytes(record(kind="request"))
    assert reason(root, warc_filename="request.warc") == "bad_claim"


def test_without_a_root_a_claim_is_refused() -> None:
    value = json.dumps({"url": URL, "warc_filename": "a.warc", "warc_offset": 0}).encode()
    for outside in (None, Outside()):
        with pytest.raises(PageMessageError, match="bad_claim"):
            decode_page(value, LIMIT, outside)


def test_a_store_that_is_away_is_no_fault_of_the_page(root: Path, tmp_path: Path) -> None:
    (tmp_path / "unmounted").mkdir()
    for away in (tmp_path / "nowhere", tmp_path / "unmounted", root / "2026" / "a.warc"):
        with pytest.raises(UnavailableError, match="claim_root"):
            claim(away, warc_filename="2026/a.warc", warc_offset=0)


def test_an_error_while_reading_is_the_stores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stale(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Archive, "_open", lambda *_: Stale(b"more than nothing"))
    with pytest.raises(UnavailableError, match="Stale"):
        claim(root, warc_filename="2026/a.warc", warc_offset=0)
