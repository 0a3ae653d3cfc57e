"""The live anchors of a state directory, read beside the judge that writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from stream.errors import StateError
from stream.tables.anchors import Dead
from stream.tables.design import U64
from stream.tables.rocks import ANCHORS, DEFAULT, Store, tables_of
from stream.tables.words import words_of

CACHE: Final = 8 << 20
META: Final = b"meta"
ROLE: Final = "judge"


class _Scheme(msgspec.Struct):
    scheme: str
    width: int


@dataclass(frozen=True, slots=True)
class LiveAnchors:
    """Fingerprints of the anchors that match, as of the last flush."""

    fingerprints: U64
    """Shape (n, words), in order of anchor."""
    width: int
    scheme: str
    """Id of the scheme they were made by."""


def of_another_version(path: Path) -> StateError:
    """What is said of a directory that is not laid out as this version does it."""
    return StateError(f"state directory {path}: another version made it; delete it to have it rebuilt")


def state_directory(path: Path) -> Path | None:
    """The judge's directory at or below `path`: the one itself, a namespace's, or that of the only namespace
    of a `state_dir`. None where there is none. Raises StateError where there are several."""
    if (path / "CURRENT").exists():
        return path
    if (path / ROLE / "CURRENT").exists():
        return path / ROLE
    found = sorted(entry.parent for entry in path.glob(f"*/{ROLE}/CURRENT"))
    if len(found) > 1:
        raise StateError(f"state directory {path}: several namespaces in it; name one of {found}")
    return found[0] if found else None


def live_anchors(path: Path) -> LiveAnchors:
    """Read them from a judge's directory. Raises StateError."""
    with Store(path, tables_of(path), CACHE, read_only=True) as store:
        meta = store.get(DEFAULT, [META])[0]
        if meta is None:
            raise StateError(f"state directory {path}: nothing was flushed into it yet")
        # The tables may be of something else, so the judge's own records are read: each begins with a page,
        # its skipped tables and its fingerprint (`stream.judge.state`).
        try:
            of = msgspec.msgpack.decode(meta, type=_Scheme)
        except msgspec.ValidationError:
            raise of_another_version(path) from None
        end = 16 + 8 * words_of(of.width)
        records = b"".join(value[16:end] for _, value in store.scan(ANCHORS))
        fingerprints = np.frombuffer(records, "<u8").astype(np.uint64).reshape(-1, words_of(of.width))
        alive = ~Dead(store).test(np.arange(len(fingerprints)))
        return LiveAnchors(fingerprints[alive], of.width, of.scheme)
