"""Records of a batch's pages as RocksDB gets them: anchors, and the baselines of their URLs.

Thousands at once: what is of one size is laid out in columns, and a compiled loop puts the URLs behind it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled, copy_bytes
from stream.judge.batch import Batch
from stream.messages.texts import Texts

PageRecords = dict[str, dict[bytes, bytes]]
"""Family -> key -> value."""
_REFERENCE: Final = ord("a")
_DUPLICATE: Final = ord("d")


def anchor_records(
    batch: Batch, unique: NDArray[np.int64], skipped: dict[int, int], first: int
) -> dict[bytes, bytes]:
    """Of the `unique` rows, which become anchors from number `first` on; `skipped` maps a row to its mask."""
    numbers = np.arange(first, first + len(unique)).reshape(-1, 1)
    masks = np.zeros(len(batch), np.uint64)
    for row, mask in skipped.items():
        masks[row] = mask
    words = (batch.page.astype(np.uint64), masks, batch.fingerprint)
    heads = _bytes(np.column_stack([each[unique] for each in words]))
    return dict(zip(_cut(_bytes(numbers, ">u8")), _records(heads, batch, unique), strict=True))


def baseline_records(
    batch: Batch,
    unique: NDArray[np.int64],
    duplicate: NDArray[np.int64],
    cluster: NDArray[np.int64],
    first: int,
) -> dict[bytes, bytes]:
    """Every URL's new baseline; the last row of a URL is the one that counts.

    `unique` rows become anchors from number `first` on, `duplicate` ones belong to their `cluster` (n,).
    """
    values = np.full(len(batch), None, object)
    numbers = np.arange(first, first + len(unique))
    values[unique] = _cut(_tagged(_REFERENCE, numbers.reshape(-1, 1)))
    words = (batch.page.astype(np.uint64), cluster.astype(np.uint64), batch.fingerprint)
    heads = _tagged(_DUPLICATE, np.column_stack([each[duplicate] for each in words]))
    values[duplicate] = _records(heads, batch, duplicate)
    keyed = zip(batch.url_key, values.tolist(), strict=True)
    return {(key or "").encode(): value for key, value in keyed if value is not None}


def _records(heads: NDArray[np.uint8], batch: Batch, rows: NDArray[np.int64]) -> list[bytes]:
    """A head, the sketch and the URL of each of the `rows`."""
    some = batch.url if len(rows) == len(batch) else [batch.url[row] for row in rows.tolist()]
    urls, sketches = Texts.utf8([url or "" for url in some]), _bytes(batch.sketch)
    size = heads.shape[1] + sketches.shape[1]
    out = np.empty(size * len(rows) + len(urls.data), np.uint8)
    _join(heads.ravel(), heads.shape[1], sketches.ravel(), sketches.shape[1], rows, urls, out)
    return Texts(out, urls.edges + size * np.arange(len(urls.edges))).strings()


@compiled
def _join(
    heads: NDArray[np.uint8],
    head: int,
    sketches: NDArray[np.uint8],
    sketch: int,
    rows: NDArray[np.int64],
    urls: Texts,
    out: NDArray[np.uint8],
) -> None:
    at = 0
    for place in range(len(rows)):
        copy_bytes(out, at, heads, place * head, head)
        copy_bytes(out, at + head, sketches, rows[place] * sketch, sketch)
        at += head + sketch
        size = urls.edges[place + 1] - urls.edges[place]
        copy_bytes(out, at, urls.data, urls.edges[place], size)
        at += size


def _bytes(words: NDArray[np.generic], kind: str = "<u8") -> NDArray[np.uint8]:
    """(n, 8 k) of (n, k) numbers of 8 bytes."""
    return np.ascontiguousarray(words, kind).view(np.uint8)


def _tagged(tag: int, words: NDArray[np.generic]) -> NDArray[np.uint8]:
    """A byte, and behind it each row's words."""
    out = np.empty((len(words), 1 + 8 * words.shape[1]), np.uint8)
    out[:, 0] = tag
    out[:, 1:] = _bytes(words)
    return out


def _cut(rows: NDArray[np.uint8]) -> list[bytes]:
    """Bytes of each row."""
    data, size = rows.tobytes(), rows.shape[1]
    return [data[first : first + size] for first in range(0, len(data), size)]
