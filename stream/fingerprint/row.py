"""The row that a worker produces for one page, as it is written to the journal."""

from __future__ import annotations

import enum
from math import isnan
from typing import Final

import msgspec

WORD: Final = 64
"""Bits of `Row.low`."""
NO_HASH: Final = bytes(16)
"""`text_hash` of a row without text."""
NO_DIGEST: Final = bytes(16)
"""`url_digest` of a row without a URL key."""
KEY_BYTES: Final = 64 << 10
"""Maximum size of a message key. Pages with larger keys, which would not fit the journal, are rejected."""
MAX_DETAIL: Final = 500
"""Longest `detail` of a rejected row, in characters, since it is sent in a header."""


class Status(enum.IntEnum):
    """The result of fingerprinting a page."""

    READY = 0
    INSUFFICIENT = 1
    REJECTED = 2
    SHORT = 3
    """Ready, but with fewer tokens than `scheme.short_tokens`: `short_distance` applies to it."""


FINGERPRINTED: Final = (Status.READY, Status.SHORT)


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One page, fingerprinted or rejected."""

    status: int
    url: str | None
    """The URL as the crawler sent it; None if the message has none."""
    fetched_at: int | None
    """Milliseconds since the epoch."""
    url_digest: bytes = NO_DIGEST
    """Keyed digest of the URL key, by which URLs are compared. NO_DIGEST if `url` is None or malformed."""
    low: int = 0
    """The lowest 64 bits of the fingerprint; msgpack integers are at most 64 bits."""
    sketch: bytes = b""
    text_hash: bytes = NO_HASH
    """A keyed hash of the normalised text."""
    reason: str | None = None
    """Why the page was rejected, as a stable code (`docs/reasons.md`)."""
    detail: str | None = None
    """Why the page was rejected, for people. Sent in the dead letter's header, not in the journal."""
    high: int = 0
    """The bits of the fingerprint above the lowest 64."""
    length: int = 0
    """Characters of the normalised text; 0 if rejected."""
    language: str = ""
    """The language that an HTML page declares, without script and region (`zh` of `zh-Hant-TW`): two or three
    letters from a to z; empty if unknown."""
    quality: float | None = None
    """A number that the crawler gives: higher is better to keep. NaN if it gave what is no finite number,
    which counts as none."""
    share: float | None = None
    """Share of the visible text of an HTML page that is compared; None of other pages. For summaries: it is
    not in the journal."""
    label: str | None = None
    """By what an index counts the page, of data that name a column for that."""

    @property
    def fingerprint(self) -> int:
        """The SimHash, of the scheme's width."""
        return self.high << WORD | self.low

    @property
    def quality_ignored(self) -> bool:
        """Whether the page has a quality that is no finite number."""
        return self.quality is not None and isnan(self.quality)

    @property
    def ready(self) -> bool:
        """Whether the page has a fingerprint."""
        return self.status in FINGERPRINTED


def has_large_key(key: bytes | None) -> bool:
    """Return whether a message key would not fit the journal."""
    return len(key or b"") > KEY_BYTES


def without_large_key(row: Row, key: bytes | None) -> Row:
    """Return the row of a page, which is rejected if its message key is too large."""
    if not has_large_key(key):
        return row
    return Row(Status.REJECTED, row.url, row.fetched_at, row.url_digest, reason="key_too_large")


def failed_row(error: Exception) -> Row:
    """Return the row that rejects a page because of an exception."""
    detail = f"{type(error).__name__}: {error}"
    return Row(Status.REJECTED, None, None, reason="failed", detail=detail[:MAX_DETAIL])
