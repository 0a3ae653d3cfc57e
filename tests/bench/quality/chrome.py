"""HTML with chrome: different pages of one site must not be duplicates, one article in two templates must.

Three measures: real pages with their hand-made main text; articles of several lengths in the templates of
three made-up sites; and Debian's installation guides, where the same file of another architecture is the same
page, more or less changed, in many languages.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import subprocess
import tempfile
from html import escape, unescape
from pathlib import Path
from typing import Any

from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from stream.text.extract import extract
from tests.bench.quality import environments, ours
from tests.bench.quality.figures import LanguageFigures
from tests.bench.quality.truth import Truth

LENGTHS = (30, 60, 120, 400)
"""Words of the articles in templates."""
WORDS = [
    f"{a}{b}"
    for a in ("ran", "tel", "mor", "vis", "ged", "pul", "sho")
    for b in ("a", "ing", "er", "ock", "ide")
]
"""Of the made-up sites' menus."""


def run(data: Path) -> dict[str, Any]:
    """`pages`, `templates` and, where `make bench` fetched them, `guides`."""
    with lzma.open(data / "web-html.jsonl.xz", "rt", encoding="utf-8") as lines:
        pages = [json.loads(line) for line in lines]
    texts = [page["text"] for page in pages]
    report: dict[str, Any] = {"pages": _pages(pages), "templates": {n: _templates(texts, n) for n in LENGTHS}}
    packages = environments.guides()
    if packages:
        first, *others = (_guide(package) for package in packages)
        report["guides"] = {
            name: _guides(first, other) for name, other in zip(environments.GUIDES[1:], others, strict=True)
        }
    return {"html": report}


def _named(html: list[str]) -> list[int | None]:
    return ours.named_of(html, Scheme(), VerdictOptions(), "html")


def _pages(pages: list[dict[str, str]]) -> dict[str, Any]:
    named = _named([page["html"] for page in pages])
    truth = Truth([page["text"] for page in pages])
    true = [truth.similarity(i, other) >= 0.7 for i, other in enumerate(named) if other is not None]
    kept = [Truth([page["text"], extract(page["html"])]).similarity(0, 1) for page in pages]
    return {
        "pages": len(pages),
        "named": len(true),
        "wrongly_named": true.count(False),
        "main_text_mean_j": round(sum(kept) / len(kept), 3),
        "main_text_lost": round(sum(each < 0.1 for each in kept) / len(kept), 3),
    }


def _templates(texts: list[str], length: int) -> dict[str, Any]:
    """Articles cut to so many words: all in one site, then in a second, then in a third."""
    split = [text.split() for text in texts]
    articles = [" ".join(words[:length]) for words in split if len(words) >= length]
    n = len(articles)
    named = _named(
        [site(i, each) for site in (_semantic, _classes, _bare) for i, each in enumerate(articles)]
    )
    truth = Truth(articles)
    found = [other is not None and truth.similarity(i % n, other % n) >= 0.8 for i, other in enumerate(named)]
    wrong = [truth.similarity(i % n, other % n) < 0.7 for i, other in enumerate(named) if other is not None]
    return {
        "articles": n,
        "found_classes": round(sum(found[n : 2 * n]) / n, 3),
        "found_bare": round(sum(found[2 * n :]) / n, 3),
        "wrongly_named": round(sum(wrong) / (3 * n), 4),
    }


def _links(rng: random.Random, count: int) -> str:
    made = (" ".join(rng.sample(WORDS, rng.randint(1, 5))) for _ in range(count))
    return "".join(f'<li><a href="/{i}">{each}</a></li>' for i, each in enumerate(made))


def _paragraphs(text: str) -> str:
    words = text.split()
    return "".join(f"<p>{escape(' '.join(words[i : i + 60]))}</p>\n" for i in range(0, len(words), 60))


def _semantic(number: int, text: str) -> str:
    """Elements that say what they are; a menu, a sidebar that changes with the page, a footer."""
    fixed, own = random.Random("site"), random.Random(number)
    return (
        f"<!doctype html><html><head><title>{number}</title></head><body>"
        f"<header><nav><ul>{_links(fixed, 25)}</ul></nav></header>"
        f"<main><article><h1>{number}</h1>{_paragraphs(text)}</article></main>"
        f"<aside><ul>{_links(own, 12)}</ul></aside>"
        f"<footer><p>{' '.join(fixed.choices(WORDS, k=60))}</p></footer></body></html>"
    )


def _classes(number: int, text: str) -> str:
    """Nothing but `div`, of the usual classes."""
    return _divisions(number, text, ("menu", "cookie-banner", "content", "sidebar", "footer"))


def _bare(number: int, text: str) -> str:
    """Nothing but `div`, of classes that say nothing."""
    return _divisions(number, text, ("x1", "x2", "x3", "x4", "x5"))


def _divisions(number: int, text: str, names: tuple[str, ...]) -> str:
    """A longer menu, a cookie notice, related articles, a footer."""
    fixed, own = random.Random("paper"), random.Random(-number)
    menu, cookies, content, sidebar, footer = names
    return (
        f"<html><head><title>{number}</title></head><body>"
        f'<div class="{menu}"><ul>{_links(fixed, 40)}</ul></div>'
        f'<div class="{cookies}">{" ".join(fixed.choices(WORDS, k=40))} <a href="#">ok</a></div>'
        f'<div><div class="{content}"><h2>{number}</h2><div>{_paragraphs(text)}</div></div>'
        f'<div class="{sidebar}"><h3>more</h3><ul>{_links(own, 15)}</ul></div></div>'
        f'<div class="{footer}">{" ".join(fixed.choices(WORDS, k=50))}</div></body></html>'
    )


def _guide(package: Path) -> dict[str, str]:
    """Path (language/file) -> HTML of one architecture."""
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        subprocess.run(["dpkg", "-x", str(package), directory], check=True)
        found = sorted(Path(directory).glob("usr/share/doc/installation-guide-*/*/*.html"))
        return {f"{path.parent.name}/{path.name}": path.read_text("utf-8", "replace") for path in found}


def _guides(a: dict[str, str], b: dict[str, str]) -> dict[str, Any]:
    shared = sorted(a.keys() & b.keys())
    html = [a[name] for name in shared] + [b[name] for name in shared]
    figures = LanguageFigures([_main(each) for each in html])
    found = figures.of(_named(html))
    del found["curve"]
    return {"pairs": figures.pairs, "modified": len(figures.within(0.8, 1.0))} | found


def _main(html: str) -> str:
    """The text of a page of these guides without its two bars, by their class."""
    html = re.sub(r"<head>.*?</head>", " ", html, flags=re.DOTALL)
    html = re.sub(r'<div[^>]*class="navheader".*?<hr', "<hr", html, flags=re.DOTALL)
    html = re.sub(r'<div[^>]*class="navfooter".*', " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", html))
