"""HTML of a hostile page: tag soup, as a string and as bytes in any charset."""

from __future__ import annotations

import random
from typing import ClassVar

from stream.errors import PageError
from stream.pages.content import page_text
from stream.pages.page import Page
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import STRINGS, damaged

TAGS = [
    "p",
    "div",
    "span",
    "b",
    "i",
    "a",
    "table",
    "tr",
    "td",
    "ul",
    "li",
    "option",
    "select",
    "svg",
    "math",
    "template",
    "script",
    "style",
    "title",
    "textarea",
    "plaintext",
    "noscript",
    "iframe",
    "object",
    "form",
    "input",
    "button",
    "article",
    "main",
    "nav",
    "aside",
    "footer",
    "header",
    "h1",
    "br",
    "hr",
    "img",
    "base",
    "frameset",
    "caption",
    "colgroup",
    "col",
    "tbody",
    "annotation-xml",
    "foreignObject",
    "desc",
    "mi",
    "mtext",
    "nobr",
    "font",
    "marquee",
    "applet",
]
CHARSETS = (
    "utf-8",
    "gbk",
    "gb18030",
    "big5",
    "shift_jis",
    "euc-kr",
    "utf-16",
    "utf-32",
    "iso-8859-1",
    "koi8-r",
)
TEXTS = (
    "The lighthouse at the pier was repaired",
    "灯塔 已 修好",
    "مرحبا بالعالم",
    "ไฟ",
    "&amp;&#0;&#x110000;&lt",
    "]]>",
)


class Html(Decoder):
    """`page_text` of a page's `html` and `body`."""

    name: ClassVar = "html"

    def make(self, rng: random.Random) -> bytes:
        soup = "".join(_piece(rng) for _ in range(rng.choice((1, 4, 20, 60))))
        data = soup.encode(rng.choice(CHARSETS), "replace")
        return damaged(rng, data) if rng.random() < 0.3 else data

    def check(self, data: bytes) -> str:
        text = page_text(Page(url="http://a/", html=data.decode("utf-8", "replace")))
        assert isinstance(text, str)
        rng = random.Random(data)
        try:
            page_text(
                Page(
                    url="http://a/",
                    body=data,
                    charset=rng.choice((None, *CHARSETS, "x-" + data[:9].decode("latin-1"))),
                    content_type=rng.choice(
                        (None, "text/html", "text/html; charset=" + data[:20].decode("latin-1"))
                    ),
                )
            )
        except PageError as error:
            return error.reason
        return "text" if text.strip() else "no text"


def _piece(rng: random.Random) -> str:
    tag = rng.choice(TAGS)
    attributes = "".join(
        f" {rng.choice(('class', 'id', 'style', 'hidden', 'href', 'a' * 40))}"
        f"{rng.choice(('', '=', '=x', '=' + chr(34), '=' + chr(39) + '>' + chr(39)))}"
        for _ in range(rng.choice((0, 0, 1, 3)))
    )
    match rng.randrange(9):
        case 0:
            return f"</{tag}>"
        case 1:
            return rng.choice(
                ("<!--", "-->", "<![CDATA[", "<!doctype html>", "<?xml?>", "<", "</", "<!>", "<script>")
            )
        case 2:
            return f"<{tag}{attributes}>" * rng.choice((2, 30))
        case 3:
            return rng.choice(STRINGS)
        case 4:
            return f'<meta charset="{rng.choice(CHARSETS)}">'
        case 5 | 6:
            return f"<{tag}{attributes}>{rng.choice(TEXTS)}</{tag}>"
        case _:
            return rng.choice(TEXTS) * rng.choice((1, 5))
