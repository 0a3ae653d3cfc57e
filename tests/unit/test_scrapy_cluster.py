"""scrapy-cluster's crawl records are page messages as they are."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from stream.pages.page import Page, PageMessageError, decode_page

HTML = "<html><body><p>Caf\u00e9 at the harbour</p></body></html>"
RECORD: dict[str, Any] = {
    "appid": "testapp",
    "attrs": None,
    "body": HTML,
    "crawlid": "abc123",
    "encoding": "utf-8",
    "links": [],
    "request_headers": {"User-Agent": ["Scrapy"]},
    "response_headers": {"Content-Type": ["text/html"], "Server": ["nginx"]},
    "response_url": "http://example.com/news/",
    "status_code": 200,
    "status_msg": "OK",
    "timestamp": "2026-01-02T03:04:05.678901",
    "url": "http://example.com/news",
}


def page(**changes: Any) -> Page:
    return decode_page(json.dumps({**RECORD, **changes}).encode(), 1 << 20)


def test_the_page_after_redirects_with_its_text_and_time_in_utc() -> None:
    assert page() == Page(
        url="http://example.com/news/",
        html=HTML,
        content_type="text/html",
        fetched_at=1_767_323_045_678,
        redirected_from="http://example.com/news",
    )
    assert page(url=page().url).redirected_from is None
    assert page(timestamp="2026-01-02T04:04:05.678+01:00") == page()


def test_a_body_in_base64_is_bytes_in_the_crawlers_encoding() -> None:
    body = HTML.encode("latin-1")
    found = page(body=base64.b64encode(body).decode(), encoding="latin-1")
    assert (found.html, found.body, found.charset) == (None, body, "latin-1")


@pytest.mark.parametrize("status", [301, 404, 503])
def test_what_is_no_page_of_its_url_is_refused(status: int) -> None:
    with pytest.raises(PageMessageError, match=f"http_status: {status}") as error:
        page(status_code=status)
    assert error.value.url == "http://example.com/news"


def test_fields_of_its_names_do_not_disturb_page_messages_of_ours() -> None:
    ours = {"url": "http://e.com/", "text": "Hello", "timestamp": 5, "encoding": {}, "response_url": [1]}
    assert decode_page(json.dumps(ours).encode(), 1 << 20) == Page(url="http://e.com/", text="Hello")


def test_a_record_without_a_body_lacks_its_content() -> None:
    with pytest.raises(PageMessageError, match="missing_field"):
        page(body=None)
