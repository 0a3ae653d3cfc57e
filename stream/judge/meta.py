"""Whose state a directory holds, and how far it has come."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from stream.tables.rocks import DEFAULT, Store, of_another_version

META: Final = b"meta"
VERSION: Final = 4
"""Of what a state directory holds; raised when it is laid out anew."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of records that are read whole when a state is opened: how many, and a digest."""

    dead: int
    skipped: int
    sources: int
    digest: int | None = None
    """Of their content; None where a version wrote it that had none."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a state as a whole."""

    version: int = VERSION
    cluster: str
    journal: str
    scheme: str
    width: int
    """Bits of a fingerprint."""
    sketch_bytes: int
    options: str
    generation: int
    applied: int
    """The next journal offset to apply."""
    last: bytes = b""
    """Digest of the journal record at `applied - 1`; empty while there is none."""
    decided: int = 0
    """The next offset of the decisions topic to apply."""
    time: int = 0
    """Log time, milliseconds since the epoch (rule 15)."""
    held: Held | None = None
    """None where a version wrote it that did not count, and before anything was applied."""


def stored_meta(store: Store) -> Meta | None:
    """Of a store; None before anything was flushed. Raises StateError where another version wrote it."""
    value = store.get(DEFAULT, [META])[0]
    if value is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        meta = msgspec.msgpack.decode(value, type=Meta)
        if meta.version == VERSION:
            return meta
    raise of_another_version(store.path)
