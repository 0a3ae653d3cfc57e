"""scrapy-cluster's crawl records, as its crawlers publish them (`PREFIX.crawled_firehose`).

They name the page after redirects `response_url`, carry the decoded page as `body` (or its bytes in base64,
with KAFKA_BASE_64_ENCODE), the time without an offset (it is UTC), and pages of every HTTP status.
"""

from __future__ import annotations

import binascii
import re
from typing import Any, Final

import msgspec

from stream.errors import PageError

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)


class CrawlRecord(msgspec.Struct, kw_only=True):
    """Fields of a page message, and those of a crawl record: of any type, as long as it is none."""

    url: str | None = None
    html: str | None = None
    body: str | None = None
    charset: str | None = None
    content_type: str | None = None
    fetched_at: int | str | None = None

    appid: Any = None
    crawlid: Any = None
    response_url: Any = None
    response_headers: Any = None
    status_code: Any = None
    encoding: Any = None
    timestamp: Any = None

    def translate(self) -> None:
        """Make the page message of it. Raises PageError `http_status` for what is no page of its URL."""
        if isinstance(self.status_code, int) and not 200 <= self.status_code < 300:
            raise PageError("http_status", str(self.status_code))
        self.url = str(self.response_url)
        headers = self.response_headers if isinstance(self.response_headers, dict) else {}
        told = {str(name).lower(): values for name, values in headers.items()}.get("content-type")
        told = told[0] if isinstance(told, list) and told else told
        self.content_type = self.content_type or (told if isinstance(told, str) else None)
        if isinstance(self.timestamp, str) and self.fetched_at is None:
            self.fetched_at = self.timestamp + ("" if _OFFSET.search(self.timestamp) else "Z")
        if self.body is None or self.html is not None:
            return
        if _is_base64(self.body):
            self.charset = self.charset or (self.encoding if isinstance(self.encoding, str) else None)
        else:
            self.html, self.body = self.body, None


def is_crawl_record(message: CrawlRecord) -> bool:
    """Whether it has what every crawl record has, and no page message."""
    return isinstance(message.response_url, str) and message.appid is not None and message.crawlid is not None


def _is_base64(body: str) -> bool:
    """No page reads like that: base64 has no blank and no angle bracket."""
    if len(body) % 4 or not _BASE64.fullmatch(body):
        return False
    try:
        return bool(binascii.a2b_base64(body))
    except binascii.Error:
        return False
