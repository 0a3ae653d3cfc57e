"""Anchors that arise inside a batch, found exactly as if its pages came one by one.

The tables hold the anchors of earlier batches only. Within a batch, the few buckets that one row enters and
another row probes are kept as lists here, and the row-by-row loop of `decide` fills and reads them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.candidates import distinct

_FILTER_BITS: Final = 22
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Neighbours:
    """The shared buckets of one batch of n rows.

    `keys` (n, T) are the exact bucket keys, `probes` (n, T, P) all probed keys, probes[:, :, 0] == keys.
    `sizes` (n, T) are the live anchors of each exact bucket before the batch; None without a cap.
    """

    def __init__(
        self,
        keys: NDArray[np.uint64],
        probes: NDArray[np.uint64],
        sizes: NDArray[np.uint32] | None,
        cap: int | None,
    ) -> None:
        self._cap = cap
        tables = keys.shape[1]
        flat = keys.ravel()
        order = np.argsort(flat, kind="stable")
        ranked = flat[order]
        first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
        counts = np.diff(np.append(first, len(ranked)))
        buckets = ranked[first]

        # Who probes a bucket that a row of the batch would enter? Exact keys shared by several rows, and
        # flipped keys that equal somebody's exact key; a one-byte filter discards nearly all others.
        shared = np.repeat(counts > 1, counts)
        probing_row = [order[shared] // tables]
        probed_key = [ranked[shared]]
        if probes.shape[2] > 1:
            marks = np.zeros(1 << _FILTER_BITS, np.uint8)
            marks[_mix(buckets)] = 1
            flipped = probes[:, :, 1:].reshape(len(keys), -1)
            survivors = np.flatnonzero(marks[_mix(flipped.ravel())])
            candidate = flipped.ravel()[survivors]
            position = np.minimum(np.searchsorted(buckets, candidate), len(buckets) - 1)
            hit = buckets[position] == candidate
            probing_row.append(survivors[hit] // flipped.shape[1])
            probed_key.append(candidate[hit])
        self._probes: dict[int, list[int]] = defaultdict(list)
        for row, key in zip(
            np.concatenate(probing_row).tolist(), np.concatenate(probed_key).tolist(), strict=True
        ):
            self._probes[row].append(key)

        # Which rows would enter a bucket that somebody probes, or that may be full when they come?
        watched = np.isin(ranked, distinct(np.concatenate(probed_key)))
        if cap is not None and sizes is not None:
            brink = sizes.ravel()[order].astype(np.int64) + np.repeat(counts, counts) > cap
            self.crowd: dict[int, int] = dict(
                zip(ranked[brink].tolist(), sizes.ravel()[order][brink].tolist(), strict=True)
            )
            """Live anchors, kept up to date row by row, of buckets that may become full in this batch."""
            watched |= brink
        else:
            self.crowd = {}
        self._entries: dict[int, list[tuple[int, int]]] = defaultdict(list)
        where = order[watched]
        for row, table, key in zip(
            (where // tables).tolist(), (where % tables).tolist(), ranked[watched].tolist(), strict=True
        ):
            self._entries[row].append((table, key))
        self._members: dict[int, list[int]] = defaultdict(list)
        self._entered: dict[int, list[int]] = {}

    def has_probed(self, row: int) -> bool:
        """Whether `row` probes any bucket that a row of this batch enters."""
        return row in self._probes

    def concerns(self, row: int) -> bool:
        """Whether `row` probes or enters a bucket that is kept here."""
        return row in self._probes or row in self._entries

    def anchors_probed_by(self, row: int) -> set[int]:
        """Rows of this batch that became anchors, are alive, and lie in a bucket that `row` probes."""
        keys = self._probes.get(row)
        if keys is None:
            return set()
        found: set[int] = set()
        for key in keys:
            found.update(self._members.get(key, ()))
        return found

    def enter(self, row: int) -> int:
        """`row` becomes an anchor. Returns the bit mask of tables whose bucket was full (rule 16)."""
        entries = self._entries.get(row)
        if entries is None:
            return 0
        skipped = 0
        entered = self._entered[row] = []
        for table, key in entries:
            size = self.crowd.get(key)
            if size is not None:
                if self._cap is not None and size >= self._cap:
                    skipped |= 1 << table
                    continue
                self.crowd[key] = size + 1
            self._members[key].append(row)
            entered.append(key)
        return skipped

    def leave(self, row: int) -> None:
        """The anchor `row` of this batch was superseded."""
        for key in self._entered.pop(row, ()):
            self._members[key].remove(row)
            if key in self.crowd:
                self.crowd[key] -= 1

    def stored_left(self, keys: list[int], skipped: int) -> None:
        """An anchor of the tables, with these bucket keys (T) and skip mask, was superseded."""
        for table, key in enumerate(keys):
            if key in self.crowd and not skipped >> table & 1:
                self.crowd[key] -= 1


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (keys * _MIX) >> np.uint64(64 - _FILTER_BITS)
