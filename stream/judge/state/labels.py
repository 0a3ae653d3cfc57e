"""Labels of pages: what an embedded index counts them by, such as the source that they were read from.

A record for each batch that has any, written before the batch: a crash may lose both, or the batch alone. So
the next process removes the records of batches that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec
import numpy as np

from stream.judge.ids import INDEX_BITS
from stream.tables.arrays import I64
from stream.tables.store.anchors import with_prefix
from stream.tables.store.rocks import DEFAULT, Store

_LABELS: Final = b"labels/"
UNLABELLED: Final = ""
_DECODE: Final = msgspec.msgpack.Decoder(list[tuple[str, int]]).decode


def note_labels(store: Store, offset: int, labels: Sequence[str]) -> None:
    """Note the labels of the pages of a batch, in order, before it is written."""
    runs = [(label, len(list(each))) for label, each in groupby(labels)]
    writes = store.batch()
    writes.put(DEFAULT, _LABELS + offset.to_bytes(8, "big"), msgspec.msgpack.encode(runs))
    store.write(writes)


def remove_labels(store: Store, end: int) -> None:
    """Remove the labels of batches from the offset `end` on, which a crash has lost."""
    writes = store.batch()
    for key, _ in store.scan(DEFAULT, _LABELS + end.to_bytes(8, "big")):
        if not key.startswith(_LABELS):
            break
        writes.delete(DEFAULT, key)
    store.write(writes)


class Labels:
    """The labels of all pages of a store."""

    def __init__(self, store: Store) -> None:
        numbers: dict[str, int] = {UNLABELLED: 0}
        first, label = [0], [0]
        for key, value in with_prefix(store, _LABELS):
            page = int.from_bytes(key, "big") << INDEX_BITS
            for name, count in _DECODE(value):
                first.append(page)
                label.append(numbers.setdefault(name, len(numbers)))
                page += count
            first.append(page)
            label.append(0)
        self._names = list(numbers)
        self._first, self._label = np.array(first), np.array(label)

    def of(self, pages: I64) -> I64:
        """Return the number of the label of each page, given by its id (k,)."""
        labels: I64 = self._label[np.searchsorted(self._first, pages, "right") - 1]
        return labels

    def name(self, label: int) -> str:
        """Return the label of a number; UNLABELLED of pages that have none."""
        return self._names[label]
