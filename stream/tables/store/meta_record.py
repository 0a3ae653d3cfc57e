"""Reads the metadata record of a state directory: what it belongs to, and how far it has come.

Callers make its decoder when they are imported: msgspec prepares a type when it is first used, and a process
in which two threads do so at once crashes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.msgpack import Decoder

from stream.messages.versions import version_of
from stream.tables.store.rocks import DEFAULT, Store, read_value, version_error

META: Final = b"meta"
"""Its key."""


class Versioned(Protocol):
    """A kind of metadata."""

    @property
    def version(self) -> int:
        """Format version of the directory."""


M = TypeVar("M", bound=Versioned)


def stored_in(store: Store, decoder: Decoder[M], version: int) -> M | None:
    """Read the record of an open store, or None before the first flush. Raises StateError if another version
    wrote it."""
    return _decoded(store.get(DEFAULT, [META])[0], store.path, decoder, version)


def stored_below(path: Path, decoder: Decoder[M], version: int) -> M | None:
    """Read the record of a directory, which another process may have open. Raises StateError, and
    DamagedStateError."""
    return _decoded(read_value(path, DEFAULT, META), path, decoder, version)


def _decoded(value: bytes | None, path: Path, decoder: Decoder[M], version: int) -> M | None:
    if value is None:
        return None
    with suppress(msgspec.ValidationError):
        meta = decoder.decode(value)
        if meta.version == version:
            return meta
    raise version_error(path, f"format {version_of(value) or 0}; this program reads {version}")
