"""Encodes pages as JSON messages for the pages topic."""

from __future__ import annotations

from typing import Any

import msgspec

from stream.pages.fields import fields_of_page
from stream.pages.page import Page
from stream.pages.times import rfc3339, writable


def encode_page(page: Page) -> bytes:
    """The JSON message: without fields that are None, `body` in base64, `fetched_at` as RFC 3339 in UTC.

    A page whose fields have other types or values than a page can have gives a message that is rejected.
    """
    return encode_fields(fields_of_page(page))


def encode_fields(fields: dict[str, Any]) -> bytes:
    """The JSON message with these fields."""
    moment = fields.get("fetched_at")
    if isinstance(moment, int) and writable(moment):
        fields = {**fields, "fetched_at": rfc3339(moment)}
    return msgspec.json.encode(fields)
