"""The live anchors of a state directory, read beside the judge that writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stream.judge.meta import stored_meta
from stream.judge.page_log import HEAD, PageLog, record_words
from stream.tables.anchors import Dead
from stream.tables.design import U64
from stream.tables.rocks import ANCHORS, Store, nothing_flushed, tables_of
from stream.tables.words import words_of

CACHE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class LiveAnchors:
    """Fingerprints of the anchors that match, as of the last flush."""

    fingerprints: U64
    """Shape (n, words), in order of anchor."""
    width: int
    scheme: str
    """Id of the scheme they were made by."""


def live_anchors(path: Path) -> LiveAnchors:
    """Read them from a judge's directory. Raises StateError."""
    with Store(path, tables_of(path), CACHE, read_only=True) as store:
        meta = stored_meta(store)
        if meta is None:
            raise nothing_flushed(path)
        words = words_of(meta.width)
        log = PageLog(store, ANCHORS, record_words(meta.width, meta.sketch_bytes))
        records = [group[:, HEAD : HEAD + words].copy() for group in log.scan()]
        fingerprints = np.concatenate([*records, np.zeros((0, words), np.uint64)])
        alive = ~Dead(store).test(np.arange(len(fingerprints)))
        return LiveAnchors(fingerprints[alive], meta.width, meta.scheme)
