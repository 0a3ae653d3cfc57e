"""Encodes a `Page` as a JSON message for the pages topic."""

from __future__ import annotations

import base64

import msgspec

from stream.pages.page import Page
from stream.pages.times import rfc3339


def encode_page(page: Page) -> bytes:
    """The JSON message: without fields that are None, `body` in base64, `fetched_at` as RFC 3339 in UTC."""
    fields: dict[str, str] = {"url": page.url}
    if page.html is not None:
        fields["html"] = page.html
    if page.text is not None:
        fields["text"] = page.text
    if page.body is not None:
        fields["body"] = base64.b64encode(page.body).decode("ascii")
    if page.content_type is not None:
        fields["content_type"] = page.content_type
    if page.charset is not None:
        fields["charset"] = page.charset
    if page.fetched_at is not None:
        fields["fetched_at"] = rfc3339(page.fetched_at)
    if page.redirected_from is not None:
        fields["redirected_from"] = page.redirected_from
    if page.canonical_url is not None:
        fields["canonical_url"] = page.canonical_url
    return msgspec.json.encode(fields)
