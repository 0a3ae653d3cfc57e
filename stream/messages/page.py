"""The page message a crawler publishes: tolerant on input, strict about what it means."""

from __future__ import annotations

import msgspec


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One crawled page: a URL and exactly one of `html`, `text` or `body`."""

    url: str
    html: str | None = None
    text: str | None = None
    body: bytes | None = None
    """Raw bytes in any charset (base64 in JSON)."""
    content_type: str | None = None
    charset: str | None = None
    fetched_at: int | None = None
    """Milliseconds since the epoch."""
