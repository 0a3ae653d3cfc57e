"""Anchors that arise inside a batch, found exactly as if its pages came one by one.

The tables hold the anchors of earlier batches only. Within a batch, the few buckets that one row enters and
another row probes are kept as lists here, and the row-by-row loop of `decide` fills and reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.candidates import distinct
from stream.tables.probing import Probing
from stream.tables.slots import Slots

_SLOTS: Final = 1 << 23
"""Slots, over all tables, by which the batch's own buckets are told from all others that are probed."""
_ENTERED: Final = 1
_WATCHED: Final = 2
"""Marks of slots: a row would enter a bucket there; several rows may meet in one, or it may be full."""


class Neighbours:
    """The shared buckets of one batch of n rows.

    `probed` are the rows' probes, in order, of `Tables.search`. `sizes` (n, T) are the live anchors of each
    exact bucket before the batch; None without a cap.
    """

    def __init__(self, probed: Sequence[Probing], sizes: NDArray[np.uint32] | None, cap: int | None) -> None:
        self._cap = cap
        design = probed[0].design
        tables = design.tables
        keys = np.concatenate([probing.keys for probing in probed]).ravel()
        slots = Slots(design, (_SLOTS // tables).bit_length() - 1)
        exact = slots.of_keys(keys.reshape(-1, tables)).ravel()
        marks = np.zeros(slots.size, np.uint8)
        marks[exact] = _ENTERED

        # Which buckets are worth a closer look? Those in a slot that two rows enter, that somebody probes by
        # flipping bits, or that are full already. Nearly all others are sorted out by their slots.
        entered = np.sort(exact)
        marks[entered[1:][entered[1:] == entered[:-1]]] = _WATCHED
        if cap is not None and sizes is not None:
            marks[exact[sizes.ravel() >= cap]] = _WATCHED
        probing_row: list[NDArray[np.uint32]] = []
        probed_key: list[NDArray[np.uint64]] = []
        first = 0
        for probing in probed:
            places = slots.of_probes(probing.keys, probing.bits, probing.flips).ravel()[probing.cells :]
            hit = np.flatnonzero(marks.take(places) != 0)
            marks[places[hit]] = _WATCHED
            probe = (hit + probing.cells).astype(np.uint32)
            cell = probing.cells_of(probe)
            probing_row.append(cell // np.uint32(tables) + np.uint32(first))
            probed_key.append(probing.keys.ravel()[cell] ^ probing.flipped(probe, cell, design.key_flip))
            first += len(probing.fingerprints)

        watched = np.flatnonzero(marks.take(exact) == _WATCHED)
        order = watched[np.argsort(keys[watched], kind="stable")]
        ranked = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(ranked)])
        counts = np.diff(np.append(starts, len(ranked)))

        # Who probes a bucket that a row of the batch would enter?
        shared = np.repeat(counts > 1, counts)
        flipped_row, flipped_key = np.concatenate(probing_row), np.concatenate(probed_key)
        meets = _among(flipped_key, ranked[starts])
        asked = np.concatenate([ranked[shared], flipped_key[meets]])
        self._probes: dict[int, list[int]] = defaultdict(list)
        for row, key in zip(
            np.concatenate([order[shared] // tables, flipped_row[meets]]).tolist(),
            asked.tolist(),
            strict=True,
        ):
            self._probes[row].append(key)

        # Which rows would enter a bucket that somebody probes, or that may be full when they come?
        kept = _among(ranked, distinct(asked))
        if cap is not None and sizes is not None:
            brink = sizes.ravel()[order].astype(np.int64) + np.repeat(counts, counts) > cap
            self.crowd: dict[int, int] = dict(
                zip(ranked[brink].tolist(), sizes.ravel()[order][brink].tolist(), strict=True)
            )
            """Live anchors, kept up to date row by row, of buckets that may become full in this batch."""
            kept |= brink
        else:
            self.crowd = {}
        self._entries: dict[int, list[tuple[int, int]]] = defaultdict(list)
        where = order[kept]
        for row, table, key in zip(
            (where // tables).tolist(), (where % tables).tolist(), ranked[kept].tolist(), strict=True
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


def _among(keys: NDArray[np.uint64], ranked: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which keys are among these ascending ones."""
    if not len(ranked):
        return np.zeros(len(keys), np.bool_)
    found: NDArray[np.bool_] = ranked.take(np.searchsorted(ranked, keys), mode="clip") == keys
    return found
