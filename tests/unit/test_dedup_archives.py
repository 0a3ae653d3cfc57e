"""`neardup dedup` copies records of web archives and saved pages as they are."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.commands import neardup
from tests.kafka.judge_helpers import text
from tests.night import cases
from tests.unit import test_sources as sources
from tests.unit.test_dedup import dedup, lines, unpacked
from tests.unit.test_sources import warc_record

pytestmark = pytest.mark.usefixtures("no_children")

Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {"": bytes, **sources.PACKS, ".gz": partial(gzip.compress, mtime=0)}


def page(url: str, words: str, status: str = "200 OK") -> bytes:
    return warc_record(url, f"<html><body><p>{words}</p></body></html>".encode(), status=status)


def archive() -> tuple[list[bytes], list[int]]:
    """Records of an archive, and the places of those that are kept."""
    some = [
        warc_record("", b"software: a crawler\r\n", kind="warcinfo"),
        warc_record("https://a.example/1", b"GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n", kind="request"),
        page("https://a.example/1", text(1)),
        warc_record("https://a.example/1", b"fetchTimeMs: 12\r\n", kind="metadata"),
        page("https://b.example/1", text(1) + " copied"),
        page("https://a.example/2", text(2), "404 Not Found"),
        warc_record("https://a.example/3", text(3).encode(), kind="conversion", content_type="text/plain"),
        warc_record("", b"another: one\r\n", kind="warcinfo"),
        page("https://a.example/4", text(4)),
        page("https://c.example/1", text(1)),
        warc_record("https://a.example/5", b"GET /5 HTTP/1.1\r\nHost: a.example\r\n\r\n", kind="request"),
    ]
    return some, [0, 2, 6, 7, 8]


def in_blocks(some: list[bytes], pack: Pack, size: int) -> bytes:
    """Members of one size, as parallel compressors make them; of larger records, too."""
    whole = b"".join(some)
    return b"".join(pack(whole[start : start + size]) for start in range(0, len(whole), size))


PACKINGS: dict[str, Callable[[list[bytes], Pack], bytes]] = {
    "one by one": lambda some, pack: b"".join(map(pack, some)),
    "behind empty members": lambda some, pack: pack(b"").join(map(pack, some)),
    "sharing members": lambda some, pack: pack(b"".join(some[:5])) + pack(b"".join(some[5:])),
    "in small blocks": lambda some, pack: in_blocks(some, pack, 100),
    "in large blocks": lambda some, pack: in_blocks(some, pack, 1500),
}
PACKED = [("one by one", suffix) for suffix in PACKS]
PACKED += [(packing, suffix) for packing in list(PACKINGS)[1:] for suffix in (".gz", ".zst")]


@pytest.mark.parametrize(("packing", "suffix"), cases(PACKED, by_day=PACKED[:-4]))
def test_records_are_copied_as_they_are_and_get_a_member_each(
    packing: str, suffix: str, tmp_path: Path
) -> None:
    some, kept = archive()
    source, out, again = (tmp_path / f"{name}.warc{suffix}" for name in ("source", "out", "again"))
    source.write_bytes(PACKINGS[packing](some, PACKS[suffix]))
    summary = dedup(source, "-o", out)
    assert (summary["kept"], summary["dropped"]) == (3, {"same cluster": 2})
    if packing == "one by one" and suffix in ("", ".gz", ".zst"):
        assert out.read_bytes() == b"".join(PACKS[suffix](some[place]) for place in kept)
    assert unpacked(out) == b"".join(some[place] for place in kept)
    assert dedup(out, "-o", again)["kept"] == 3
    if suffix in (".gz", ".zst"):
        assert again.read_bytes() == out.read_bytes()


def test_an_archive_without_records_is_copied(tmp_path: Path) -> None:
    source, out = tmp_path / "source.warc.gz", tmp_path / "out.warc.gz"
    source.write_bytes(gzip.compress(b""))
    assert dedup(source, "-o", out)["pages"] == 0
    assert unpacked(out) == b""


def test_an_archive_is_compressed_as_the_output_is_named(tmp_path: Path) -> None:
    some, kept = archive()
    source = tmp_path / "source.warc.gz"
    source.write_bytes(b"".join(map(gzip.compress, some)))
    whole = b"".join(some[place] for place in kept)
    for suffix in PACKS:
        dedup(source, "-o", tmp_path / f"out.warc{suffix}")
        assert unpacked(tmp_path / f"out.warc{suffix}") == whole


@pytest.mark.night
@pytest.mark.parametrize("cut", [1, 5, 200])
@pytest.mark.parametrize("packed", ["records", "whole", "plain"])
def test_a_truncated_archive_keeps_its_pages_before_the_damage(cut: int, packed: str, tmp_path: Path) -> None:
    """As whole records, and those that were judged."""
    some = archive()[0][:9]
    data = {
        "records": b"".join(map(gzip.compress, some)),
        "whole": gzip.compress(b"".join(some)),
        "plain": b"".join(some),
    }[packed]
    suffix = "" if packed == "plain" else ".gz"
    source, out = tmp_path / f"source.warc{suffix}", tmp_path / f"out.warc{suffix}"
    source.write_bytes(data[:-cut])
    result = neardup("dedup", "--worker-processes", "1", "--json", source, "-o", out)
    summary = json.loads(result.stdout)
    assert result.exit_code == bool(summary["damaged"])
    assert summary["damaged"] or summary["kept"] == 3
    pages = iter([2, 6, 8])
    expected = [0, *[next(pages) for _ in range(summary["kept"])]]
    if summary["kept"] == 3:
        expected.insert(3, 7)
    missing = b"\n" if (packed, cut) == ("plain", 1) else b""  # as it is in the source
    assert unpacked(out) + missing == b"".join(some[place] for place in expected)


def test_saved_pages_are_copied_with_their_folders_and_times(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    for place, name in enumerate(["a/one.html", "a/copy.html", "b/two.txt", "b/picture.png"]):
        file = saved / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text("one" if "a/" in name else name))
        os.utime(file, (1_700_000_000 + place, 1_700_000_000 + place))
    summary = dedup(saved, "-o", tmp_path / "out", "--dropped", tmp_path / "dropped.jsonl")
    assert summary["kept"] == 2
    written = sorted(each for each in (tmp_path / "out").rglob("*") if each.is_file())
    assert [each.relative_to(tmp_path / "out").as_posix() for each in written] == ["a/copy.html", "b/two.txt"]
    for each in written:
        stored = saved / each.relative_to(tmp_path / "out")
        assert each.read_bytes() == stored.read_bytes()
        assert each.stat().st_mtime == stored.stat().st_mtime
    dropped = {each["url"].rpartition("/")[2]: each["why"] for each in lines(tmp_path / "dropped.jsonl")}
    assert dropped == {"one.html": "same cluster", "picture.png": "no page"}
    one = saved / "b" / "two.txt"
    assert dedup(one, "-o", tmp_path / "one.txt")["kept"] == 1
    assert (tmp_path / "one.txt").read_bytes() == one.read_bytes()


def test_the_second_reading_sees_what_the_first_one_saw(tmp_path: Path) -> None:
    """A file that cannot be read is no page; the others are copied."""
    saved = tmp_path / "saved"
    saved.mkdir()
    for number in range(4):
        (saved / f"{number}.html").write_text(text(number))
    (saved / "1.html").unlink()
    (saved / "1.html").symlink_to("/proc/self/mem")
    summary: dict[str, Any] = dedup(saved, "-o", tmp_path / "out", code=1)
    assert (summary["pages"], summary["kept"], len(summary["damaged"])) == (3, 3, 1)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["0.html", "2.html", "3.html"]


@pytest.mark.parametrize("name", ["dropped.jsonl", "dropped.csv", "dropped.parquet"])
def test_what_is_no_page_is_named_where_dropped_pages_are(tmp_path: Path, name: str) -> None:
    """Each response is in the output or in the report; requests and such are in neither."""
    body = f"<p>{' '.join(f'word{number}' for number in range(40))}".encode()
    records = [
        warc_record("http://a.example/1", body),
        warc_record("http://a.example/2", body, http="X: y\r\n"),
        warc_record("http://a.example/3", b"PNG", content_type="image/png"),
        warc_record("http://a.example/4", body, status="404 Not Found"),
        warc_record("http://a.example/1", b"GET", kind="request"),
        warc_record("http://a.example/5", body[3:], content_type=""),
    ]
    (tmp_path / "crawl.warc").write_bytes(b"".join(records))
    saved = tmp_path / "saved"
    saved.mkdir()
    for file, content in (("a.html", body.replace(b"word", b"other")), ("b.css", b"p {}"), ("c.png", b"PNG")):
        (saved / file).write_bytes(content)
    report = tmp_path / name
    neardup("dedup", tmp_path / "crawl.warc", saved, "-o", tmp_path / "kept", "--dropped", report)
    readers = {".jsonl": duckdb.read_json, ".csv": duckdb.read_csv, ".parquet": duckdb.read_parquet}
    report_rows = readers[report.suffix](str(report))
    rows = report_rows.project("url, origin_file, origin_place, why, reason").fetchall()
    kept = (tmp_path / "kept" / "crawl.warc").read_bytes().count(b"WARC-Target-URI")
    why = [(each[0].rpartition("/")[2], each[3], each[4]) for each in rows]
    assert why == [
        ("2", "same cluster", None),
        ("5", "same cluster", None),
        ("3", "no page", "content_type"),
        ("4", "no page", "http_status"),
        ("b.css", "no page", "suffix"),
        ("c.png", "no page", "suffix"),
    ]
    assert (kept, [each[2] is not None for each in rows]) == (1, [True] * 4 + [False] * 2)
