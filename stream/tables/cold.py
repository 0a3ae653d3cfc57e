"""The cold tier: generations frozen into RocksDB and no longer in RAM.

Family `table-tt`: prefix (big-endian, as many bytes as that table's prefix needs) + generation (u16 BE) ->
entries of 16 bytes (fingerprint u64 LE, anchor number u64 LE) in order of number. A presence map in RAM, one
byte a slot, says which generations are worth asking: bit g & 7 stands for all generations of that lane.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.tables.anchors import AnchorLog, Dead, Skipped, entered
from stream.tables.candidates import I64, expand
from stream.tables.design import TABLE_BITS, U64, Design
from stream.tables.probing import Probing
from stream.tables.rocks import Store, table_family
from stream.tables.slots import Slots

U8 = NDArray[np.uint8]

LANES: Final = 8
LEAST_MAP: Final = 64 << 20
"""Bytes that the map may take whatever memory is allowed."""
ADDED_AT_ONCE: Final = 1 << 16
"""Anchors added to the map at once: about 25 ms."""


def bucket_keys(prefixes: U64, generations: NDArray[np.uint16], prefix_bits: int) -> list[bytes]:
    """Keys of a table's family."""
    size = (prefix_bits + 7) // 8
    keys = np.empty((len(prefixes), size + 2), np.uint8)
    keys[:, :size] = prefixes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]
    keys[:, size:] = generations.astype(">u2").view(np.uint8).reshape(-1, 2)
    rows: list[bytes] = keys.view(f"V{size + 2}").ravel().tolist()
    return rows


class ColdTier:
    """Generations [0, generations), each of `size` anchors, and a map of at most `memory` bytes."""

    def __init__(
        self,
        store: Store,
        design: Design,
        log: AnchorLog,
        skipped: Skipped,
        dead: Dead,
        *,
        size: int,
        distance: int,
        memory: int,
    ) -> None:
        self._store = store
        self._design = design
        self._log = log
        self._skipped = skipped
        self._dead = dead
        self._size = size
        self._distance = distance
        self.generations = 0
        self.probes = 0
        self.hits = 0
        self._bits = (max(memory, LEAST_MAP) // design.tables).bit_length() - 1
        self._slots: Slots | None = None
        self._present = np.zeros(0, np.uint8)
        self._cleaning: threading.Thread | None = None
        self._added = 0  # anchors below it are in the map

    @property
    def anchors(self) -> int:
        """Anchors of the cold generations, dead ones included."""
        return self.generations * self._size

    def extend(self, generations: int, *, wait: bool) -> None:
        """Come closer to answering for all generations below this number; they must be frozen.

        A call adds a slice to the map, so that nobody stands still for a million anchors; with `wait`, it
        returns when all are in.
        """
        if generations <= self.generations:
            return
        if self._slots is None:
            self._slots = Slots(self._design, self._bits)
            self._present = np.empty(self._slots.size, np.uint8)
            # Touching fresh memory takes seconds on a virtual machine; filling releases the GIL.
            self._cleaning = threading.Thread(
                target=self._present.fill, args=(0,), name="clean-map", daemon=True
            )
            self._cleaning.start()
        if self._cleaning is not None:
            if self._cleaning.is_alive() and not wait:
                return
            self._cleaning.join()
            self._cleaning = None
        while self.generations < generations:
            end = (self.generations + 1) * self._size
            self._add(self._slots, self._added, min(self._added + ADDED_AT_ONCE, end))
            if self._added == end:
                self.generations += 1
            if not wait:
                break

    def _add(self, slots: Slots, start: int, end: int) -> None:
        rows = self._log.read(start, end)
        lane = np.uint8(1 << (self.generations % LANES))
        places = slots.of_keys(self._design.keys(rows[:, 0]))
        masks = self._skipped.masks(start, end)
        if masks is None:
            places = places.ravel()
        else:
            places = np.concatenate(
                [places[entered(masks, table), table].ravel() for table in range(self._design.tables)]
            )
        self._present[places] = self._present.take(places) | lane  # equal slots get equal values
        self._added = end

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        if self._slots is None or not self.generations:
            return
        slots = self._slots.of_probes(probing.keys, probing.bits, probing.flips).ravel()
        lanes = self._present.take(slots)
        probe = np.flatnonzero(lanes).astype(np.uint32)
        if not len(probe):
            return
        cell = probing.cells_of(probe)
        keys = probing.keys.ravel().take(cell) ^ probing.flipped(probe, cell, self._design.key_flip)
        unique, first, bucket = np.unique(keys, return_index=True, return_inverse=True)
        entries, lengths = self._read(unique, lanes[probe[first]])
        starts = np.cumsum(lengths) - lengths
        fingerprints = np.ascontiguousarray(entries[:, 0])
        anchors = entries[:, 1].astype(np.int64)
        position, source = expand(starts[bucket], lengths[bucket])
        row = (cell // np.uint32(self._design.tables)).take(source)
        distance = np.bitwise_count(fingerprints.take(position) ^ probing.fingerprints.take(row))
        near = np.flatnonzero(distance <= self._distance)
        probing.found.add(row[near], anchors[position[near]], distance[near])
        if probing.sizes is not None:
            exact = int(np.searchsorted(probe, probing.cells))
            alive = np.concatenate([[0], np.cumsum(~self._dead.test(anchors))])
            sizes = alive[starts + lengths] - alive[starts]
            probing.sizes[cell[:exact]] += sizes[bucket[:exact]]

    def _read(self, keys: U64, lanes: U8) -> tuple[U64, I64]:
        """Entries of these distinct bucket keys, shape (e, 2), key after key, and how many each has."""
        table = (keys & np.uint64((1 << TABLE_BITS) - 1)).astype(np.int64)
        prefixes = keys >> np.uint64(TABLE_BITS)
        order = np.argsort(table, kind="stable")
        edges = table[order].searchsorted(np.arange(self._design.tables + 1))
        generations = np.arange(self.generations)
        lane_of = (1 << (generations % LANES)).astype(np.uint8)
        per_key: list[bytes] = [b""] * len(keys)
        for number in range(self._design.tables):
            chosen = order[edges[number] : edges[number + 1]]
            if not len(chosen):
                continue
            which, generation = np.nonzero(lanes[chosen, None] & lane_of)
            if not len(which):  # only a generation that is still being added
                continue
            wanted = bucket_keys(
                prefixes[chosen[which]], generation.astype(np.uint16), int(self._design.prefix_bits[number])
            )
            values = self._store.get(table_family(number), wanted)
            self.probes += len(wanted)
            for key, value in zip(chosen[which].tolist(), values, strict=True):
                if value is not None:
                    self.hits += 1
                    per_key[key] += value
        lengths = np.fromiter(map(len, per_key), np.int64, len(per_key)) // 16
        entries = np.frombuffer(b"".join(per_key), "<u8").astype(np.uint64, copy=False).reshape(-1, 2)
        return entries, lengths
