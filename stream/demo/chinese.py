"""Chinese pages for every verdict: originals, mirrors, edits, later visits, an empty and a malformed page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stream.demo.order import shuffled
from stream.demo.templates import PAPER, READER, READER_TRADITIONAL, SHELL, render
from stream.demo.texts import TEXTS
from stream.pages.page import Page
from stream.sources.encode import encode_page
from stream.sources.source import Message

PAPER_SITE: Final = "https://www.qingshi-wanbao.example/story/"
READER_SITE: Final = "https://read.haowen.example/article/"
MOBILE_SITE: Final = "https://m.haowen.example/post/"
FIRST_FETCH: Final = 1_740_787_200_000
"""2025-03-01T00:00:00Z. From then on, one page is fetched per minute."""

EXPECTED: Final = {"unique": 12, "duplicate": 15, "recrawl": 2, "insufficient": 1, "rejected": 1}
"""The verdicts on these pages, whatever the order in which partitions are read.

Unique are the first page of each of the eleven articles, and the article that replaces another one at its
URL. Other pages in the crawl do not change this, if they are in another language.
"""

MIRRORS: Final = {
    "tea": "gbk",
    "books": "utf-8",
    "metro": "gbk",
    "marathon": "utf-8",
    "names": "gb18030",
    "balcony": "utf-8",
    "lighthouse": "gb18030",
    "market": "big5",
}
"""Articles that the reader site copies -> the charset in which it serves them."""
EDITS: Final = ("tea", "books", "metro", "marathon", "balcony", "lighthouse", "market")
"""Articles that the mobile site copies with one sentence corrected."""
REPLACED, REPLACEMENT = "bridge", "library"
"""The second article later replaces the first at its URL."""
_TEXTS: Final = {text.slug: text for text in TEXTS}


class Visit(NamedTuple):
    """One fetch of a URL."""

    url: str
    body: bytes
    content_type: str = "text/html"
    charset: str | None = None


def visits() -> Iterator[Visit]:
    """Yield all pages except the malformed message, with visits of the same URL in order."""
    for slug, text in _TEXTS.items():
        if slug != REPLACEMENT:
            yield Visit(_paper(slug), render(PAPER, text, "utf-8"), "text/html; charset=utf-8")
    for number, (slug, charset) in enumerate(MIRRORS.items()):
        template = READER_TRADITIONAL if charset == "big5" else READER
        body = render(template, _TEXTS[slug], charset)
        # The charset is declared by the Content-Type header, by the crawler, or only in the page.
        yield (
            Visit(f"{READER_SITE}{1001 + number}", body, f"text/html; charset={charset}"),
            Visit(f"{READER_SITE}{1001 + number}", body, charset=charset),
            Visit(f"{READER_SITE}{1001 + number}", body),
        )[number % 3]
    for number, slug in enumerate(EDITS):
        yield Visit(f"{MOBILE_SITE}{slug}-{number}", render(READER, _TEXTS[slug], "utf-8", edited=True))
    yield Visit(_paper("stars"), render(PAPER, _TEXTS["stars"], "gb18030"), "text/html; charset=gb18030")
    yield Visit(_paper("noodles"), render(PAPER, _TEXTS["noodles"], "utf-8", edited=True))
    yield Visit(_paper(REPLACED), render(PAPER, _TEXTS[REPLACEMENT], "utf-8"))
    yield Visit(PAPER_SITE + "app.html", SHELL.encode())


def chinese_messages() -> list[Message]:
    """Return all pages and one truncated message, in the order of the crawl."""
    messages = []
    for number, visit in enumerate(visits()):
        page = Page(
            url=visit.url,
            body=visit.body,
            content_type=visit.content_type,
            charset=visit.charset,
            fetched_at=FIRST_FETCH + number * 60_000,
        )
        messages.append(Message(encode_page(page), page.url, f"Chinese page {number + 1}"))
    whole = messages[0].value
    messages.append(Message(whole[: len(whole) // 2], None, f"Chinese page {len(messages) + 1}"))
    return shuffled(messages, lambda message: message.url_hint)


def _paper(slug: str) -> str:
    return f"{PAPER_SITE}{slug}.html"
