"""Page messages: JSON of any shape, compressed or framed, whole and damaged, up to the journal row."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Any, ClassVar

import numpy as np
import zstandard

from stream.errors import PageError
from stream.messages import journal
from stream.messages.journal import Rows, SourceRange, decode_journal
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.pages.page import decode_page
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import NUMBERS, STRINGS, changed, damaged

LIMIT = 1 << 16
WORDS = [
    "the",
    "harbour",
    "authority",
    "will",
    "repair",
    "lighthouse",
    "港",
    "口",
    "灯塔",
    "维修",
    "пирс",
    "до",
    "зимы",
    "ไฟ",
    "प्रकाशस्तंभ",
]
CHARSETS = (
    None,
    "utf-8",
    "gbk",
    "big5",
    "shift_jis",
    "utf-16",
    "utf-7",
    "nonsense",
    "",
    " " * 99,
    "latin1\0",
)
TYPES = (
    None,
    "text/html",
    "text/plain; charset=gbk",
    "application/pdf",
    "a/b" * 50,
    "text/html;charset=" + " " * 99,
)
MARKUP = ("<p>{}</p>", "<html><body><article>{}", "<b><i>{}</p>", "<!-- {} -->", "<script>{}", "&#x{};", "{}")


class PageMessages(Decoder):
    """`decode_page`, and the row that a worker makes of the message."""

    name: ClassVar = "pages"

    def __init__(self) -> None:
        super().__init__()
        self._fingerprinter = PageFingerprinter()

    def make(self, rng: random.Random) -> bytes:
        message = _message(rng)
        while rng.random() < 0.4:
            message = changed(rng, message)
        data = _json(rng, message)
        if rng.random() < 0.1:
            data = rng.choice((gzip.compress(data, 1), zstandard.compress(data, 1)))
        if rng.random() < 0.05:
            data = b"\0" + rng.randbytes(4) + data
        return damaged(rng, data) if rng.random() < 0.3 else data

    def check(self, data: bytes) -> str:
        try:
            found = decode_page(data, LIMIT)
        except PageError as error:
            if not error.reason.isidentifier():
                raise AssertionError(f"a reason is a name, not {error.reason!r}") from error
        else:
            assert sum(each is not None for each in (found.html, found.text, found.body)) == 1
        row = self._fingerprinter.message(data, LIMIT)
        source = SourceRange("k", "pages", "0" * 32, 0, 0, 1, 1)
        rows = Rows.of(self._fingerprinter.scheme, [source], [row], [0], [None])
        again = decode_journal(rows.encode(), 1)
        assert isinstance(again, journal.Rows)
        assert (again.strings.columns().url.texts(), again.reason.get(0)) == ([row.url], row.reason)
        given = None if row.quality_ignored else row.quality
        assert (None if np.isnan(again.quality[0]) else again.quality[0]) == given
        return row.reason or row.status.name.lower()


def _message(rng: random.Random) -> Any:
    text = " ".join(rng.choices(WORDS, k=rng.choice((0, 1, 7, 30))))
    if rng.random() < 0.1:
        text += rng.choice(STRINGS)
    html = "".join(rng.choice(MARKUP).format(text) for _ in range(rng.randrange(1, 4)))
    message: dict[str, Any] = {
        "url": rng.choice(("http://example.com/a?b=c#d", "https://例え.jp/路", *STRINGS))
    }
    match rng.randrange(5):
        case 0:
            message["text"] = text
        case 1:
            message["html"] = html
        case 2:
            body = html.encode(rng.choice(("utf-8", "utf-16", "gb18030")), "replace")
            if rng.random() < 0.3:
                body, message["content_encoding"] = (
                    gzip.compress(body, 1),
                    rng.choice(("gzip", "zstd", "br", "x-gzip")),
                )
            message["body"] = base64.b64encode(body).decode()
        case 3:
            message |= {
                "warc_filename": rng.choice(("a.warc.gz", *STRINGS)),
                "warc_offset": rng.choice(NUMBERS),
            }
        case _:
            message |= {
                "response_url": "http://example.com/r",
                "status_code": rng.choice((200, 404, 301)),
                "encoding": "utf-8",
                "attrs": {},
                "crawlid": "1",
                "appid": "2",
                "body": html,
                "timestamp": "2026-01-02T03:04:05.678Z",
                "response_headers": {"Content-Type": ["text/html"]},
            }
    if rng.random() < 0.3:
        message["charset"] = rng.choice(CHARSETS)
    if rng.random() < 0.3:
        message["content_type"] = rng.choice(TYPES)
    if rng.random() < 0.3:
        message["fetched_at"] = rng.choice(
            ("2026-01-02T03:04:05Z", "9999-12-31T23:59:59Z", *NUMBERS, *STRINGS)
        )
    if rng.random() < 0.3:
        message["quality"] = rng.choice((0.5, -3, True, float("nan"), 1e308, *NUMBERS, *STRINGS))
    return message


def _json(rng: random.Random, message: Any) -> bytes:
    said = json.dumps(message, ensure_ascii=rng.random() < 0.5, default=repr)
    return said.encode("utf-8", "surrogatepass")
