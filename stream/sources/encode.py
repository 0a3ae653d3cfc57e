"""Encodes a `Page` as a JSON message for the pages topic."""

from __future__ import annotations

import msgspec

from stream.pages.fields import fields_of_page
from stream.pages.page import Page


def encode_page(page: Page) -> bytes:
    """The JSON message: without fields that are None, `body` in base64, `fetched_at` as RFC 3339 in UTC.

    A page whose fields have other types or values than a page can have gives a message that is rejected.
    """
    return msgspec.json.encode(fields_of_page(page))
