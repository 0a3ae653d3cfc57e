"""The crawl records that scrapy-cluster publishes to `PREFIX.crawled_firehose`.

They differ from page messages: `response_url` is the page's URL after redirects, `url` the one before; `body`
is the decoded page, or base64 of its bytes with KAFKA_BASE_64_ENCODE; times are UTC without an offset; and
there are records of every HTTP status.
"""

from __future__ import annotations

import binascii
import re
from typing import Any, Final

import msgspec

from stream.errors import PageError

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class CrawlRecord(msgspec.Struct, kw_only=True):
    """The fields of a page message and of a crawl record. The latter accept any type, as other messages may
    have fields of these names."""

    url: str | None = None
    html: str | None = None
    body: str | None = None
    charset: str | None = None
    content_type: str | None = None
    fetched_at: int | float | str | None = None
    redirected_from: str | None = None

    appid: Any = None
    crawlid: Any = None
    response_url: Any = None
    response_headers: Any = None
    status_code: Any = None
    encoding: Any = None
    timestamp: Any = None

    def translate(self) -> None:
        """Set the fields of a page message from those of the crawl record. Raises PageError `http_status`
        unless the status is 2xx."""
        if isinstance(self.status_code, int) and not 200 <= self.status_code < 300:
            raise PageError("http_status", str(self.status_code))
        if self.url != self.response_url:
            self.redirected_from = self.url
        self.url = str(self.response_url)
        headers = self.response_headers if isinstance(self.response_headers, dict) else {}
        declared = {str(name).lower(): values for name, values in headers.items()}.get("content-type")
        declared = declared[0] if isinstance(declared, list) and declared else declared
        self.content_type = self.content_type or (declared if isinstance(declared, str) else None)
        if isinstance(self.timestamp, str) and self.fetched_at is None:
            self.fetched_at = self.timestamp
        if self.body is None or self.html is not None:
            return
        if _is_base64(self.body):
            self.charset = self.charset or (self.encoding if isinstance(self.encoding, str) else None)
        else:
            self.html, self.body = self.body, None


def is_crawl_record(message: CrawlRecord) -> bool:
    """Return whether the message has the fields that all crawl records have and page messages have not."""
    return isinstance(message.response_url, str) and message.appid is not None and message.crawlid is not None


def _is_base64(body: str) -> bool:
    """Return whether the text is base64. Pages are not: base64 has neither spaces nor angle brackets."""
    if len(body) % 4 or not _BASE64.fullmatch(body):
        return False
    try:
        return bool(binascii.a2b_base64(body))
    except binascii.Error:
        return False
