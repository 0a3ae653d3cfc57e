"""The bounds of what a worker or a load appends to the journal as one record."""

from __future__ import annotations

from typing import Final

from stream.fingerprint.row import Row

APPEND_ROWS: Final = 512
APPEND_BYTES: Final = 256 << 10
"""Bounds of a journal record (rule 3). A single larger row has a record of its own."""
ROW_OVERHEAD: Final = 112
"""Bytes of a row in a journal record besides sketch and strings: fixed columns and msgpack lengths."""


def weight_of(row: Row, key: bytes | None) -> int:
    """Return the approximate size of a row in an encoded record, in bytes."""
    size = ROW_OVERHEAD + len(row.sketch)
    if row.url:
        size += len(row.url.encode())
    if row.reason:
        size += len(row.reason.encode())
    return size + len(key) if key else size
