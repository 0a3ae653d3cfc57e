"""Headers Content-Type, and bodies that declare charsets or are XML: what a page is."""

from __future__ import annotations

import random
import re
from typing import ClassVar

from stream.errors import PageError
from stream.pages import content_type
from stream.pages.content import page_content
from stream.pages.page import Page
from stream.text.declared_charset import labels_of_meta
from stream.text.xml import as_html
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import damaged

TYPES = (
    *(
        "text/html",
        "TEXT/plain",
        "application/xhtml+xml",
        "text/xml",
        "image/png",
        "x/y",
        "*/*",
        "html",
        "",
        "text/",
    ),
    *("unknown/unknown", "application/json", "application/octet-stream", "é/é", "text/html charset=gbk"),
)
LABELS = (
    *(
        "utf-8",
        "gbk",
        "big5",
        "utf-16",
        "iso-2022-jp",
        "hz-gb-2312",
        "x-user-defined",
        "replacement",
        "utf-7",
        "",
    ),
    *("windows-1252", "KOI8_R", "'euc-kr'", "klingon", "utf-8,gbk", "\0", "x" * 99),
)
MARKS = (
    "",
    "\ufeff",
    "\n",
    "<?xml version='1.0' encoding='{}'?>",
    "<!doctype html>",
    "<!DOCTYPE html [ <!ENTITY a 'b'> ]>",
)
PIECES = (
    *(
        "<meta charset='{}'>",
        "<meta charset={}/>",
        "<meta http-equiv=content-type content='text/html;charset={}'>",
    ),
    *(
        "<!-- <meta charset={}> -->",
        "<script>'<meta charset={}>'</script>",
        "<title>",
        "</title>",
        "<!--",
        "-->",
    ),
    *(
        "<meta content='charset={}' http-equiv=refresh>",
        "<script/>",
        "<style type='a'/>",
        "<title/>",
        "<![CDATA[",
        "]]>",
    ),
    *(
        "<?a",
        "?>",
        "<p>",
        "x",
        "灯台",
        "\x1b$B%F%9\x1b(B",
        "\0",
        "&lt;",
        "<a title='",
        "'>",
        '"',
        "/>",
        "<",
        "é",
        "x" * 1100,
    ),
    *(
        "<xmp>",
        "<noscript>",
        "<plaintext>",
        "<template shadowrootmode=open>",
        "</script>",
        "<textarea>",
        "%PDF-",
    ),
)
KIND = re.compile(r"[\w!#$%&'*+.^`|~-]+/[\w!#$%&'*+.^`|~-]+", re.ASCII)
HIDDEN = b"<!--<meta charset=big5>--><script>'<meta charset=big5>'</script><a title='<meta charset=big5>'>"


class ContentTypes(Decoder):
    """`content_type` of a header, and `page_content` of a body with it. A line feed is between the two."""

    name: ClassVar = "content types"

    def make(self, rng: random.Random) -> bytes:
        header = rng.choice(TYPES) + "".join(
            rng.choice((";", " ", ",", "; charset=", ';charset="', "=", '"', "\\", "x", *TYPES))
            + rng.choice(LABELS)
            for _ in range(rng.choice((0, 0, 1, 1, 2, 5)))
        )
        pieces = (rng.choice(MARKS), *rng.choices(PIECES, k=rng.choice((0, 1, 3, 9, 30))))
        body = "".join(piece.replace("{}", rng.choice(LABELS)) for piece in pieces)
        encoding = rng.choice(
            ("utf-8", "utf-8", "gbk", "cp1251", "utf-16", "utf-16-be", "utf-32", "iso2022_jp")
        )
        data = header.replace("\n", "").encode() + b"\n" + body.encode(encoding, "replace")
        return damaged(rng, data) if rng.random() < 0.3 else data

    def check(self, data: bytes) -> str:
        line, _, body = data.partition(b"\n")
        header = line.decode("utf-8", "replace")
        read = content_type.content_type(header)
        assert read.kind is None or KIND.fullmatch(read.kind)
        assert read.charset is None or read.charset in header or "\\" in header
        labels = list(labels_of_meta(body))
        assert list(labels_of_meta(HIDDEN + body)) == labels, "a meta element that is none was taken for one"
        if "<" not in (text := body.decode("utf-8", "replace")):
            assert as_html(text) == text
        charset = None if len(data) % 3 else (labels or ["utf-8"])[0]
        try:
            is_html, text = self._content(body, header, charset)
        except PageError as error:
            # Only a message's own charset may be unknown.
            if error.reason not in ("unsupported_content", "unknown_charset" if charset else ""):
                raise
            return error.reason
        return ("html" if is_html else "text") if text.strip() else "no text"

    @staticmethod
    def _content(body: bytes, header: str, charset: str | None) -> tuple[bool, str]:
        found = page_content(Page(url="http://a/", body=body, content_type=header, charset=charset))
        return found.is_html, found.main_text()
