"""Directories: mirrors of pages under any names, shards of data sets, and what is neither."""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path

import msgspec
import pytest

from stream.errors import SettingsError
from stream.sources.directory import DirectorySource
from stream.sources.jsonl import JsonlSource
from stream.sources.open import open_source, open_sources
from tests.commands import neardup
from tests.kafka.judge_helpers import text

LINE = b'{"url": "http://a/", "text": "x"}\n'
HTML = b"<!DOCTYPE html><p>x"
PAGES = {
    "about": b"\xef\xbb\xbf\n <!-- a\n --><HTML>",
    "a.asp": b"<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC '-'>",
    "b.php": "\ufeff<html lang='de'>".encode("utf-16-le"),
    "index.html.1": b"<body>",
    "sub/index.html?a=b%2Fc&d=e f": b"<p>x</p>",
    "viewtopic.php?t=7": HTML,
}
OTHERS = {
    "a.css?v=1": b"a{}", "feed": b"<?xml version='1.0'?><rss>", "i.svg": b"<svg >", "j.js": b"'<div>'",
    "k.png?x=1": b"\x89PNG", "l": b"", "m.json": LINE, "n": b"<abbr>", "o": b"<!-- never closed <html>",
    "p.php": b"<!---->" * 60,  # to try how they may end takes as long as anybody waits
}  # fmt: skip


def tree(root: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(root)


def test_what_begins_as_html_is_a_page_whatever_its_name(tmp_path: Path) -> None:
    (source,) = open_sources([tree(tmp_path, PAGES | OTHERS)], base_urls=["http://s"])
    assert isinstance(source, DirectorySource)
    assert [each.url_hint for each in source] == [
        *("http://s/a.asp", "http://s/about", "http://s/b.php", "http://s/index.html.1"),
        *("http://s/sub/index.html?a=b%2Fc&d=e%20f", "http://s/viewtopic.php?t=7"),
    ]
    assert source.passed_over == {"suffix": len(OTHERS)}
    assert source.bytes_read == source.total_bytes == sum(map(len, PAGES.values()))


def test_without_a_base_a_name_is_a_path(tmp_path: Path) -> None:
    page = f"{tree(tmp_path, PAGES)}/viewtopic.php?t=7"
    for source in (open_source(page), open_source(page, format="directory")):
        assert [each.url_hint for each in source] == [
            f"file://localhost{page.replace('?', '%3F').replace('=', '%3D')}"
        ]


SHARDS = {"part-0.jsonl": LINE, "sub/part-1.jsonl": LINE, "_SUCCESS": b"", ".part-0.crc": b"x", "_a/b": b"x"}
BESIDE = dict.fromkeys(
    (
        "README.md",
        "sub/LICENSE",
        "LICENSE-2.0.txt",
        "dataset_infos.json",
        "SHA256SUMS",
        "a.jsonl.md5",
        ".git/config",
    ),
    b"x",
)


def test_a_directory_of_data_is_its_files(tmp_path: Path) -> None:
    opened = open_sources([tree(tmp_path, SHARDS | BESIDE)])
    assert [each.name for each in opened] == [f"{tmp_path}/part-0.jsonl", f"{tmp_path}/sub/part-1.jsonl"]
    assert all(isinstance(each, JsonlSource) for each in opened)
    assert [sum(1 for _ in each) for each in opened] == [1, 1]
    beside = len(SHARDS) - len(opened) + len(BESIDE)
    assert [each.passed_over for each in opened] == [{"beside": beside}, {}]
    assert sum(1 for each in opened[0].no_pages()) == beside


@pytest.mark.parametrize("options", [(), ("--verified",)])
def test_pairs_are_found_in_all_files_of_data(tmp_path: Path, options: tuple[str, ...]) -> None:
    lines = {
        f"part-{part}.jsonl": msgspec.json.encode({"url": f"http://{part}/", "text": text(1)})
        for part in "ab"
    }
    assert "1 pair among 2 " in neardup("match", tree(tmp_path, lines), *options).stderr


def test_files_of_data_may_have_no_suffix(tmp_path: Path) -> None:
    assert len(open_sources([tree(tmp_path, {"part-00000": LINE, "part-00001": LINE})])) == 2


def test_a_directory_of_pages_and_data_is_refused_unless_pages_are_meant(tmp_path: Path) -> None:
    source = tree(tmp_path, SHARDS | {"sub/about": HTML})
    with pytest.raises(
        SettingsError, match=r"has pages \(.*about\) and data \(.*part-0\.jsonl\); for the pages"
    ):
        open_sources([source])
    for (opened,) in (
        open_sources([source], format="directory"),
        open_sources([source], base_urls=["http://s/"]),
    ):
        assert sum(1 for _ in opened) == 1
        assert opened.passed_over == {"suffix": len(SHARDS)}


def test_a_file_of_no_format_beside_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="part-1: neither its name nor its content tells its format"):
        open_sources([tree(tmp_path, SHARDS | {"part-1": b"x"})])


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_beside_data_is_named(kind: str, tmp_path: Path) -> None:
    source = tree(tmp_path / "data", SHARDS)
    if kind == "link":
        (tmp_path / "data/part-2").symlink_to(tree(tmp_path / "other", SHARDS))
    else:
        os.mkfifo(tmp_path / "data/part-2")
    with pytest.raises(SettingsError, match=r"part-2: a link to a directory, or a pipe; name it itself"):
        open_sources([source])


@pytest.mark.parametrize("pages", [{}, PAGES], ids=["data", "pages"])
def test_a_directory_that_cannot_be_read_is_named(
    pages: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside data it is an error, as a shard is missing; beside pages, damage."""

    def scandir(path: object) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(EACCES, "Permission denied")
        return listed(path)

    listed = os.scandir
    root = tree(tmp_path, (pages or SHARDS) | {"closed/part-2.jsonl": LINE})
    monkeypatch.setattr(os, "scandir", scandir)
    if not pages:
        with pytest.raises(SettingsError, match=r"source .*closed: Permission denied"):
            open_sources([root])
        return
    (source,) = open_sources([root])
    source.strict = False
    assert (sum(1 for _ in source), source.damage_count) == (len(pages), 1)


def test_a_link_to_nothing_is_damage(tmp_path: Path) -> None:
    (source,) = open_sources([tree(tmp_path, PAGES)])
    (tmp_path / "z.html").symlink_to("nothing")
    source.strict = False
    assert (sum(1 for _ in source), source.damage_count) == (len(PAGES), 1)
    assert "z.html: No such file" in source.damages[0].error


@pytest.mark.parametrize("files", [{}, {"a.jpg": b"\xff\xd8", "b.css": b"a{}"}], ids=["empty", "images"])
def test_a_directory_of_neither_is_passed_over(tmp_path: Path, files: dict[str, bytes]) -> None:
    (source,) = open_sources([tree(tmp_path, files)])
    assert not list(source)
    assert source.passed_over.total() == len(files)
