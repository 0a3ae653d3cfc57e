"""What a worker makes of one page: the fingerprinter's result."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from stream.fingerprint.scheme import UNCERTAIN_BITS

WORD: Final = 64
"""Bits of `Row.low`."""
NO_HASH: Final = bytes(16)
"""`text_hash` of a row without text."""


class Status(enum.IntEnum):
    """What the worker could make of a page."""

    READY = 0
    INSUFFICIENT = 1
    REJECTED = 2
    SHORT = 3
    """Ready, with fewer tokens than `scheme.short_tokens`: a larger distance may hold."""


FINGERPRINTED: Final = (Status.READY, Status.SHORT)


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One page, fingerprinted or refused."""

    status: int
    url: str | None
    """As the crawler sent it; None when the message names none."""
    url_key: str | None
    """Normalised URL; equal keys are the same URL. None when `url` is None or no URL."""
    fetched_at: int | None
    """Milliseconds since the epoch."""
    low: int = 0
    """The lowest 64 bits of the fingerprint: no larger number travels in msgpack."""
    uncertain: bytes = bytes(UNCERTAIN_BITS)
    """Bit indexes, least certain first."""
    sketch: bytes = b""
    text_hash: bytes = NO_HASH
    """xxh3-128 of the normalised text, big-endian."""
    reason: str | None = None
    """Why the page was rejected: a short stable code."""
    detail: str | None = None
    """Why, for a person; goes to the dead letter's header, not to the journal."""
    high: int = 0
    """The other bits of a wider fingerprint."""

    @property
    def fingerprint(self) -> int:
        """The SimHash, of as many bits as the scheme says."""
        return self.high << WORD | self.low

    @property
    def ready(self) -> bool:
        """Whether the page has a fingerprint."""
        return self.status in FINGERPRINTED
