"""The warm tier: anchors evicted from the hot tier, packed in RAM up to a budget.

Its anchors are in RocksDB, too. They are added by generations: all tables are repacked with them, one after
the other, in the background.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from stream.errors import SettingsError
from stream.tables.arrays import I64, U64
from stream.tables.design import Design
from stream.tables.search.probing import Probing
from stream.tables.store.anchors import IndexedAnchors
from stream.tables.warm.packed import Packed, Packing, Slice

STEPS: Final = 16
"""All anchors are repacked once there is another sixteenth of them, or a generation if that is more."""
LOADS: Final = 4
"""At start, when many anchors are new, a quarter of the budget is packed at a time. Packing takes 20 bytes
per new anchor."""


def step_of(anchors: int, generation: int) -> int:
    """Number of new anchors for which repacking that many is worthwhile."""
    return max(generation, anchors // STEPS)


def anchors_in(design: Design, memory: int, generation: int) -> int:
    """Most anchors that can be packed in `memory` bytes, in whole generations."""

    def memory_of(generations: int) -> int:
        anchors = generations * generation
        return Packed.bytes(design, anchors, anchors + step_of(anchors, generation))

    most = memory // (4 * design.tables * generation)
    return bisect_right(range(1, most + 1), memory, key=memory_of) * generation


class WarmTier:
    """Searches the anchors [floor, end), in at most `memory` bytes. `background` has a single thread."""

    def __init__(
        self, design: Design, anchors: IndexedAnchors, background: ThreadPoolExecutor,
        *, distance: int, memory: int, generation: int,
    ) -> None:  # fmt: skip
        self._log, self._skipped, self._dead = anchors.log, anchors.skipped, anchors.dead
        self._background = background
        self._distance = distance

        self._design, self._generation = design, generation
        self.budget = anchors_in(design, memory, generation)
        """Most anchors that fit in memory, in whole generations."""
        self.largest_step: Final = self._step(self.budget)
        try:
            self._packed = Packed(design, self.budget, self.budget + self.largest_step)
        except MemoryError:
            raise SettingsError(f"tables_memory: cannot allocate {memory} bytes for packed anchors") from None
        self._packed.clear(anchors.log.first)
        self._packing: tuple[Packing, Future[None]] | None = None
        self._packed_from = anchors.log.first
        """Number of the first anchor that is being packed."""

    def shrink(self, memory: int) -> None:
        """Hold fewer anchors from now on. All must have been dropped, and none be waited for."""
        first = self.end
        del self._packed  # frees its memory first
        self.budget = min(self.budget, anchors_in(self._design, memory, self._generation))
        self._packed = Packed(self._design, self.budget, self.budget + self._step(self.budget))
        self._packed.clear(first)

    @property
    def reads_from(self) -> int:
        """Anchors below this number are not read any more."""
        return self._log.count if self.is_idle else self._packed_from

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being packed."""
        return self._packing is None

    def _step(self, anchors: int) -> int:
        return step_of(anchors, self._generation)

    @property
    def step(self) -> int:
        """Number of new anchors for which repacking is worthwhile."""
        return self._step(self.end - self.floor)

    @property
    def floor(self) -> int:
        """Number of the first anchor."""
        return self._packed.first

    @property
    def end(self) -> int:
        """The number after the last anchor."""
        return self._packed.end

    def extend(self, end: int, *, wait: bool) -> None:
        """Make progress towards searching all anchors below `end`, at most `budget` of them.

        They are packed in the background. With `wait`, returns when all of it is done.
        """
        while True:
            if self._packing is not None:
                packing, packed = self._packing
                if not (wait or packed.done()):
                    return
                packed.result()
                self._packing = None if packing.swap() else (packing, self._background.submit(packing.pack))
                continue
            due = self._due(end)
            if due is None:
                return
            self._packing = due, self._background.submit(due.pack)

    def _due(self, end: int) -> Packing | None:
        """The next packing: of the new anchors, up to those for which the cold tier must first take over old
        ones. None if nothing is due."""
        packed = self._packed
        if packed.first == packed.end:
            packed.clear(packed.first)
        room = min(packed.first + self.budget, packed.oldest + packed.places)
        if packed.end >= min(end, room) or (room < end and room < packed.end + self.step):
            return None
        total = min(end, room) - packed.first
        end = min(end, room, packed.end + max(self.step, self.budget // LOADS))
        self._packed_from = packed.end
        return Packing(packed, end, partial(self._slices, packed.end, end), total)

    def _slices(self, start: int, end: int) -> Iterator[Slice]:
        for first, rows in self._log.slices(start, end):
            end = first + len(rows)
            yield first, rows, self._dead.masks(first, end, self._skipped.masks(first, end))

    def drop(self, floor: int) -> None:
        """Evict the anchors below `floor`."""
        if floor > self._packed.first:
            self._packed.drop(floor)

    def keys(self, anchors: I64) -> tuple[U64, I64] | None:
        """The keys of all anchors here (m, W), and the places in these (n,) of some, which are all in [floor,
        end). None if keys are not kept."""
        packed = self._packed
        return (packed.words, anchors % packed.places) if packed.words.size else None

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        self._packed.search(probing, self._distance, self._dead.bits)
