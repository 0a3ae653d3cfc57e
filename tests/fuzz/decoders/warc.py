"""Web archives: as a source of pages, and as records that messages refer to."""

from __future__ import annotations

import gzip
import random
from typing import ClassVar

import zstandard

from stream.errors import PageError
from stream.pages.warc_record import archived_page
from stream.sources.warc import WarcSource
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import NUMBERS, STRINGS, damaged

LIMIT = 1 << 16
TYPES = ("response", "resource", "conversion", "request", "warcinfo", "metadata", "nonsense", "")
DATES = ("2026-01-02T03:04:05Z", "9999-12-31T23:59:59Z", "2026", "T", "0000-00-00T00:00:00Z", *STRINGS)


class WebArchives(Decoder):
    """`WarcSource` over a whole file, and `archived_page` at its beginning."""

    name: ClassVar = "web archives"

    def __enter__(self) -> WebArchives:
        self._directory = self.directory()
        return self

    def make(self, rng: random.Random) -> bytes:
        members = [_record(rng) for _ in range(rng.randrange(1, 4))]
        members = [damaged(rng, each) if rng.random() < 0.2 else each for each in members]
        match rng.randrange(3):
            case 0:
                members = [gzip.compress(each, 1) for each in members]
            case 1:
                members = [zstandard.compress(each, 1) for each in members]
        data = b"".join(members)
        return damaged(rng, data) if rng.random() < 0.3 else data

    def check(self, data: bytes) -> str:
        try:
            archived_page(data, True, LIMIT, "here")
            came = "claimed"
        except PageError as error:
            came = error.reason
        path = self._directory / "crawl.warc"
        path.write_bytes(data)
        try:
            pages = sum(1 for _ in WarcSource(str(path)))
        except PageError as error:
            return f"{came}, {error.reason}"
        return f"{came}, {pages} pages"


def _record(rng: random.Random) -> bytes:
    body = rng.choice((b"<p>hello", b"", "<p>港口".encode("gbk"), rng.randbytes(40)))
    encoding = rng.choice(
        (None, None, None, "gzip", "zstd", "br", "deflate", "identity", "gzip, gzip", *STRINGS)
    )
    if encoding == "gzip":
        body = gzip.compress(body, 1)
    chunked = rng.random() < 0.2
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = [rng.choice(("HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 abc", "ICY 200", ""))]
    head += [f"Content-Type: {rng.choice(('text/html', 'text/html; charset=gbk', 'image/png', *STRINGS))}"]
    head += [f"Content-Encoding: {encoding}"] if encoding is not None else []
    head += ["Transfer-Encoding: chunked"] if chunked else []
    kind = rng.choice(TYPES[:3] if rng.random() < 0.8 else TYPES)
    payload = "\r\n".join([*head, "", ""]).encode("utf-8", "replace") + body if kind == "response" else body
    size: object = len(payload) if rng.random() < 0.85 else rng.choice((*NUMBERS, *STRINGS))
    fields = [
        rng.choice(("WARC/1.0", "WARC/1.1", "WARC/1.1", "WARC/9", "")),
        f"WARC-Type: {kind}",
        f"WARC-Target-URI: {rng.choice(('http://example.com/', '<http://example.com/>', *STRINGS))}",
        f"WARC-Date: {rng.choice(DATES if rng.random() < 0.5 else DATES[:1])}",
        f"Content-Type: {'application/http; msgtype=response' if kind == 'response' else 'text/html'}",
        f"Content-Length: {size}",
    ]
    if rng.random() < 0.1:
        rng.shuffle(fields)
    return "\r\n".join([*fields, "", ""]).encode("utf-8", "replace") + payload + b"\r\n\r\n"
