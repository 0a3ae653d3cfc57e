"""HTML with its main text: real pages, the Debian handbook, and javadoc of two releases."""

from __future__ import annotations

import json
import lzma
import random
import re
import subprocess
import tempfile
import zipfile
from html import unescape
from pathlib import Path
from typing import NamedTuple

from tests.bench.quality import environments

COMMENTS = "!@#$%^&*()"
"""What stands before the comments of readers in a reference of web-html."""
HANDBOOK_PAGES = 15
"""Of each language, the same in all."""
JAVADOC_PAIRS = 40
"""Of each library."""


class PageSet(NamedTuple):
    """Pages, and of each the main text, by kind of reference."""

    html: list[str]
    references: dict[str, list[str]]


class Pair(NamedTuple):
    """A page in two releases: HTML, and main text."""

    html: tuple[str, str]
    texts: tuple[str, str]


def page_sets(data: Path) -> dict[str, PageSet]:
    """Data set -> its pages."""
    web = _lines(data / "web-html.jsonl.xz")
    found = {
        name: PageSet(
            [page["html"] for page in half],
            {
                ", article": [page["text"].partition(COMMENTS)[0] for page in half],
                ", with comments": [page["text"] for page in half],
            },
        )
        for name, half in (("web, tuned on", web[::2]), ("web, held out", web[1::2]))
    }
    news = _lines(data / "readability-html.jsonl.xz")
    found["readability"] = PageSet([page["html"] for page in news], {"": [page["text"] for page in news]})
    package = environments.handbook()
    if package is not None:
        html = _handbook(package)
        found["handbook"] = PageSet(html, {"": [_chapter(each) for each in html]})
    return found


def _lines(path: Path) -> list[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _handbook(package: Path) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        subprocess.run(["dpkg", "-x", str(package), directory], check=True)
        languages = sorted(Path(directory).glob("usr/share/doc/debian-handbook/html/*/"))
        names = sorted(path.name for path in languages[0].glob("*.html"))
        random.Random(2).shuffle(names)
        paths = [language / name for language in languages for name in names[:HANDBOOK_PAGES]]
        return [path.read_text("utf-8", "replace") for path in paths if path.exists()]


def _chapter(html: str) -> str:
    """The text of a page of the handbook without its bars and lists of contents."""
    html = re.sub(r"<head>.*?</head>", " ", html, flags=re.DOTALL)
    html = re.sub(r'<div id="banner".*?</div>', " ", html, flags=re.DOTALL)
    html = re.sub(r'<ul[^>]*class="docnav\b.*?</ul>', " ", html, flags=re.DOTALL)
    html = re.sub(r'<div[^>]*id="(?:navigation|tocdiv)".*?</div>', " ", html, flags=re.DOTALL)
    return _text(html)


def _text(html: str) -> str:
    html = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", html))


_CLASS = re.compile(
    r"<main[^>]*>(.*?)</main>"
    r"|<!-- =+ START OF CLASS DATA =+ -->(.*?)<!-- =+ END OF CLASS DATA =+ -->"
    r'|<div class="contentContainer">(.*?)<div class="bottomNav">',
    re.DOTALL,
)


def javadoc_pairs() -> list[Pair]:
    """Pages of classes that two releases of a library have both; releases differ in their templates."""
    return [pair for old, new in environments.javadoc() for pair in _pairs(old, new)]


def _pairs(old: Path, new: Path) -> list[Pair]:
    found: list[Pair] = []
    with zipfile.ZipFile(old) as one, zipfile.ZipFile(new) as other:
        renamed = {_without_module(name): name for name in other.namelist()}
        names = sorted(name for name in one.namelist() if _is_class(name))
        random.Random(1).shuffle(names)
        for name in names:
            if len(found) == JAVADOC_PAIRS:
                break
            like = renamed.get(_without_module(name))
            if like is None:
                continue
            a, b = (jar.read(each).decode("utf-8", "replace") for jar, each in ((one, name), (other, like)))
            classes = _CLASS.search(a), _CLASS.search(b)
            if all(classes):
                texts = tuple(_text(next(filter(None, each.groups()))) for each in classes if each)
                found.append(Pair((a, b), (texts[0], texts[1])))
    return found


def _is_class(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.endswith(".html") and file[0].isupper() and not re.search("/(class-use|src-html)/", name)


def _without_module(name: str) -> str:
    """A path without the directory of its module, which newer releases have."""
    return re.sub(r"^[a-z.0-9]+/(?=org|com)", "", name)
