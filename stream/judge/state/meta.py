"""The metadata of a state directory: what it belongs to, and its position in journal and decisions."""

from __future__ import annotations

from typing import Final

import msgspec

from stream.judge.state.window import StoredWindow
from stream.tables.store.meta_record import stored_in
from stream.tables.store.rocks import Store

VERSION: Final = 8
"""Format version of state directories."""


class LoadedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and a digest of the records that are loaded completely at startup, to detect lost ones."""

    dead: int
    skipped: int
    sources: int
    window: int = 0
    """Marks, forwarded anchors and hits."""
    forgotten: int = 0
    """Pages to erase."""
    digest: int
    """Digest of their content."""


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """How far requests to forget pages have come in a state directory."""

    requests: int = 0
    """The next offset of the requests topic to decide."""
    decided: int = 0
    """The offset after that of the last decision that forgot pages, in the decisions topic; 0 before any."""
    journal: int = 0
    """The journal offset before which the last decision on requests stands, whatever it forgot."""
    appended: int = 0
    """When its record was appended, in milliseconds since the epoch. Trimmed decisions do not say this any
    more, and topics name before it what was requested."""
    erased: int = 0
    """Such an offset: what decisions before it forgot is erased from the directory."""

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of all that was forgotten."""
        return self.erased == self.decided


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata record of a state directory."""

    version: int = VERSION
    cluster: str
    journal: str
    scheme: str
    width: int
    """Bits per fingerprint."""
    sketch_bytes: int
    options: str
    generation: int
    applied: int
    """The next journal offset to apply."""
    last: bytes = b""
    """Digest of the journal record at `applied - 1`; empty before the first record."""
    decided: int = 0
    """The next offset of the decisions topic to apply."""
    ledger: int = 0
    """Offset of the newest ledger record in the decisions topic, or of its first part; 0 before any."""
    time: int = 0
    """Log time, in milliseconds since the epoch (rule 15)."""
    window: StoredWindow | None = None
    """None without a lifetime (rule 23)."""
    forgetting: Forgetting = Forgetting()
    held: LoadedRecords | None = None
    """None before anything was applied."""

    @property
    def erased(self) -> int:
        """What decisions before this offset forgot is erased from the directory."""
        return self.forgetting.erased


META_DECODER: Final = msgspec.msgpack.Decoder(Meta)


def stored_meta(store: Store) -> Meta | None:
    """Read the metadata of a store, or None before the first flush.

    Raises StateError if another version wrote it.
    """
    return stored_in(store, META_DECODER, VERSION)
