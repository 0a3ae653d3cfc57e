"""The demo's Chinese pages get the expected verdicts; documentation is downloaded once and completely."""

from __future__ import annotations

import random
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from stream import Index
from stream.demo import EXPECTED, CrawlError, chinese_messages, prepare
from stream.demo import fetch as fetching
from stream.demo.order import shuffled
from stream.demo.releases import MAVEN, PIP, Release
from stream.page_rows.page_fingerprinter import PageFingerprinter


@pytest.mark.parametrize("seed", range(5))
def test_the_chinese_pages_get_the_expected_verdicts_in_any_order_of_urls(seed: int) -> None:
    visits = chinese_messages()
    places = {visit.url_hint: random.Random(f"{seed} {visit.url_hint}").random() for visit in visits}
    fingerprinter = PageFingerprinter()
    rows = [
        fingerprinter.message(visit.value, 1 << 20)
        for visit in sorted(visits, key=lambda visit: places[visit.url_hint])
    ]
    with Index() as index:
        assert Counter(each.verdict for each in index.judge(rows).verdict_records()) == EXPECTED


def test_the_order_is_shuffled_repeatable_and_keeps_a_urls_visits() -> None:
    items = [(f"u{n % 40}", n) for n in range(100)]
    order = shuffled(items, lambda item: item[0])
    assert order == shuffled(items, lambda item: item[0])
    assert order != items
    assert sorted(order) == sorted(items)
    for url in {url for url, _ in items}:
        numbers = [n for of, n in order if of == url]
        assert numbers == sorted(numbers)


def test_without_documentation_the_crawl_is_the_chinese_pages() -> None:
    crawl = prepare(origin="none")
    assert sorted(m.value for m in crawl) == sorted(m.value for m in chinese_messages())
    assert len(crawl) == 31
    assert crawl.bytes_read == crawl.total_bytes


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the package clients: packages of two pages; the names of what was downloaded."""
    made: list[str] = []

    def download(release: Release, into: Path) -> Path:
        made.append(release.name)
        package = into / "package.jar"
        with zipfile.ZipFile(package, "w") as files:
            for name in ("index.html", "a/b.html", "a/logo.png"):
                files.writestr(release.root + name, f"<p>{name} of {release.version}")
        return package

    monkeypatch.setattr(fetching, "_download", download)
    return made


def test_documentation_is_downloaded_once_and_only_its_pages_are_kept(
    tmp_path: Path, downloads: list[str]
) -> None:
    said: list[str] = []
    crawl = prepare(said.append, origin="maven", cache=tmp_path)
    assert len(said) == len(downloads) == len(MAVEN)
    urls = {m.url_hint for m in crawl if m.url_hint and "docs.example.org" in m.url_hint}
    assert urls == {
        f"https://docs.example.org/kafka/{version}/{path}"
        for version in ("4.0.0", "4.1.0")
        for path in ("index.html", "a/b.html")
    }
    again = prepare(origin="maven", cache=tmp_path)
    assert [m.value for m in again] == [m.value for m in crawl]
    assert len(downloads) == len(MAVEN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka-4.0.0.zip", "kafka-4.1.0.zip"]


def test_a_damaged_archive_is_fetched_again(tmp_path: Path, downloads: list[str]) -> None:
    (tmp_path / "kafka-4.0.0.zip").write_bytes(b"PK\x03\x04 cut off")
    assert len(prepare(origin="maven", cache=tmp_path)) == 31 + 4
    assert downloads == ["kafka-4.0.0", "kafka-4.1.0"]


@pytest.mark.parametrize("first", [MAVEN, PIP])
def test_what_is_cached_is_preferred(tmp_path: Path, downloads: list[str], first: Sequence[Release]) -> None:
    fetching.fetch(first, tmp_path, lambda _: None)
    downloads.clear()
    assert len(prepare(cache=tmp_path)) == 31 + 2 * len(first)
    assert downloads == []


def test_when_everything_fails_every_attempt_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", "absent-python")
    with pytest.raises(CrawlError, match=r"absent-python is not installed; mvn is not installed"):
        prepare(cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
