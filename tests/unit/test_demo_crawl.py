"""The demo's Chinese pages get the expected verdicts; documentation is downloaded once and completely."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from resiliparse.extract.html2text import extract_plain_text

from stream.demo import EXPECTED, CrawlError, chinese_messages, prepare
from stream.demo import fetch as fetching
from stream.demo.chinese import EDITS, MIRRORS, REPLACED, REPLACEMENT, Visit, visits
from stream.demo.order import shuffled
from stream.demo.releases import MAVEN, PIP, Release
from stream.demo.texts import TEXTS, Text

HAN = re.compile(r"[\u3400-\u9fff\U00020000-\U0002ffff]")
TITLES = {text.title: text.slug for text in TEXTS}


def han(text: str) -> str:
    return "".join(HAN.findall(text))


def jaccard(one: str, other: str) -> float:
    a, b = ({text[i : i + 5] for i in range(len(text) - 4)} for text in (one, other))
    return len(a & b) / len(a | b)


def article(visit: Visit) -> tuple[str, str]:
    """(slug, Han characters of the main content), read with the charset that the page itself names."""
    named = re.search(rb'charset="?([\w-]+)', visit.body)
    assert named is not None
    html = visit.body.decode(named[1].decode())
    title = re.search("<h1[^>]*>([^<]*)", html)
    return TITLES[title[1]] if title else "", han(extract_plain_text(html, main_content=True))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.slug)
def test_an_article_is_long_enough_and_its_correction_small(text: Text) -> None:
    body = "".join(text.paragraphs)
    sentence, corrected = text.edit
    assert 300 <= len(han(body)) <= 600
    assert body.count(sentence) == 1
    assert 0.9 < jaccard(han(body), han(body.replace(sentence, corrected))) < 1


def test_articles_have_nothing_in_common() -> None:
    bodies = [han("".join(text.paragraphs)) for text in TEXTS]
    assert max(jaccard(a, b) for a in bodies for b in bodies if a is not b) < 0.02


def test_expected_verdicts_follow_from_what_the_pages_are() -> None:
    fetched = list(visits())
    urls = Counter(visit.url for visit in fetched)
    articles = {article(visit)[0] for visit in fetched} - {""}
    assert articles == {text.slug for text in TEXTS}
    assert sorted(urls.values())[-4:] == [1, 2, 2, 2]
    assert {
        "unique": len(articles),
        "duplicate": len(MIRRORS) + len(EDITS),
        "recrawl": sum(count - 1 for count in urls.values()) - 1,
        "insufficient": 1,
        "rejected": 1,
    } == EXPECTED
    assert sum(EXPECTED.values()) == len(chinese_messages()) == len(fetched) + 1
    changing = {slug for visit in fetched if urls[visit.url] == 2 for slug, _ in [article(visit)]}
    assert changing.isdisjoint(MIRRORS)
    assert changing.isdisjoint(EDITS), "or a superseded anchor's copies would be unique again"
    assert {REPLACED, REPLACEMENT} <= changing


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
