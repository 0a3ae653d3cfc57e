"""The cold tier: generations frozen into RocksDB and no longer in RAM.

Family `table-tt`: prefix (big-endian, as many bytes as that table's prefix needs) + generation (u16 BE) ->
entries of 16 bytes (fingerprint u64 LE, anchor number u64 LE) in order of number. A presence map in RAM, one
byte a slot, says which generations are worth asking: bit g & 7 stands for all generations of that lane.
"""

from __future__ import annotations

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
FIRST_SLOTS: Final = 1 << 22
MOST_SLOTS: Final = 1 << 29
"""The map's limit, 512 MiB."""
LOAD: Final = 8
"""The map grows when a table has fewer than this many slots a cold anchor."""
ADDED_AT_ONCE: Final = 1 << 17


def bucket_keys(prefixes: U64, generations: NDArray[np.uint16], prefix_bits: int) -> list[bytes]:
    """Keys of a table's family."""
    size = (prefix_bits + 7) // 8
    keys = np.empty((len(prefixes), size + 2), np.uint8)
    keys[:, :size] = prefixes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]
    keys[:, size:] = generations.astype(">u2").view(np.uint8).reshape(-1, 2)
    rows: list[bytes] = keys.view(f"V{size + 2}").ravel().tolist()
    return rows


class ColdTier:
    """Generations [0, generations), each of `size` anchors."""

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
        self._first_bits = max(1, (FIRST_SLOTS // design.tables).bit_length() - 1)
        self._most_bits = min((MOST_SLOTS // design.tables).bit_length() - 1, int(design.prefix_bits.max()))
        self._slots: Slots | None = None
        self._present = np.zeros(0, np.uint8)

    @property
    def anchors(self) -> int:
        """Anchors of the cold generations, dead ones included."""
        return self.generations * self._size

    def extend(self, generations: int) -> None:
        """Answer for the generations below this number too; they must be frozen."""
        if generations <= self.generations:
            return
        bits = self._first_bits if self._slots is None else self._slots.bits
        while bits < self._most_bits and (1 << bits) < LOAD * generations * self._size:
            bits = min(bits + 2, self._most_bits)
        if self._slots is None or bits > self._slots.bits:
            self._slots = Slots(self._design, bits)
            self._present = np.empty(self._slots.size, np.uint8)
            self._present.fill(0)
            self.generations = 0
        for generation in range(self.generations, generations):
            self._add(self._slots, generation)
        self.generations = generations

    def _add(self, slots: Slots, generation: int) -> None:
        first = generation * self._size
        fingerprints = self._log.read(first, first + self._size)
        lane = np.uint8(1 << (generation % LANES))
        for start in range(0, self._size, ADDED_AT_ONCE):
            rows = fingerprints[start : start + ADDED_AT_ONCE]
            places = slots.of_keys(self._design.keys(rows))
            masks = self._skipped.masks(first + start, first + start + len(rows))
            if masks is None:
                places = places.ravel()
            else:
                places = np.concatenate(
                    [places[entered(masks, table), table].ravel() for table in range(self._design.tables)]
                )
            self._present[places] = self._present.take(places) | lane  # equal slots get equal values

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
