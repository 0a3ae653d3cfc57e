"""The metadata record of a state directory: what it belongs to, and how far it has come.

Callers make its decoder when they are imported: msgspec prepares a type when it is first used, and a process
in which two threads do so at once crashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.msgpack import Decoder

from stream.errors import StateError
from stream.messages.versions import version_of
from stream.tables.store.failures import damage_error
from stream.tables.store.rocks import DEFAULT, Store, read_value, version_error

META: Final = b"meta"
"""Its key."""
OWNERS: Final = {
    "cluster": "bootstrap_servers",
    "journal": "namespace",
    "scheme": "scheme",
    "options": "verdict options",
}
"""What a state that follows decisions belongs to, as `begun` takes it."""


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


def begun(
    store: Store,
    decoder: Decoder[M],
    fresh: M,
    owners: Mapping[str, str],
    families: Sequence[str],
    cure: str = " to rebuild it",
) -> M:
    """Return the record of an open store. One without any begins as `fresh`, so that whatever is flushed has
    a record.

    `owners`: field that says what a state belongs to -> the option that says it of this process. Raises
    StateError for a state of another one, with the `cure` of deleting it, and DamagedStateError if there is
    no record but something in one of these families.
    """
    meta = stored_in(store, decoder, fresh.version)
    if meta is None:
        if any(next(store.scan(family), None) for family in families):
            raise damage_error(store.path, "records, but no meta record")
        writes = store.batch()
        writes.put(DEFAULT, META, msgspec.msgpack.encode(fresh))
        store.write(writes)
        return fresh
    for name, option in owners.items():
        have, want = getattr(meta, name), getattr(fresh, name)
        if have != want:
            raise StateError(
                f"state directory {store.path} belongs to {name} {have}, but {option} says {want}; use"
                f" another state_dir, or delete this one{cure}"
            )
    return meta


def _decoded(value: bytes | None, path: Path, decoder: Decoder[M], version: int) -> M | None:
    if value is None:
        return None
    with suppress(msgspec.ValidationError):
        meta = decoder.decode(value)
        if meta.version == version:
            return meta
    raise version_error(path, f"format {version_of(value) or 0}; this program reads {version}")
