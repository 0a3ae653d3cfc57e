"""The warm tier: anchors that the hot tier let go, packed in RAM for as long as the memory lasts.

What it holds is in RocksDB too. Anchors come by generations; with them every table is packed anew, one after
the other, in the background.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from stream.errors import SettingsError
from stream.tables.anchors import AnchorLog, Dead, Skipped
from stream.tables.design import Design
from stream.tables.packed import Packed, Packing, Slice
from stream.tables.probing import Probing

STEPS: Final = 16
"""All that is packed is packed anew for another sixteenth, or for a generation where that is more."""
LOADS: Final = 4
"""At start, when much is new, a quarter is packed at once: that takes 20 bytes an anchor meanwhile."""


class WarmTier:
    """Answers for the anchors [floor, end).

    `memory` are bytes; `background` has one thread.
    """

    def __init__(
        self, design: Design, log: AnchorLog, skipped: Skipped, dead: Dead, background: ThreadPoolExecutor,
        *, distance: int, memory: int, generation: int,
    ) -> None:  # fmt: skip
        self._log = log
        self._skipped = skipped
        self._dead = dead
        self._background = background
        self._distance = distance

        def taken(generations: int) -> int:
            anchors = generations * generation
            return Packed.bytes(design, anchors, anchors + self._step(anchors))

        self._generation = generation
        most = memory // (4 * design.tables * generation)
        self.budget: Final = bisect_right(range(1, most + 1), memory, key=taken) * generation
        """Anchors that the memory has room for, of whole generations."""
        self.largest_step: Final = self._step(self.budget)
        try:
            self._packed = Packed(design, self.budget, self.budget + self.largest_step)
        except MemoryError:
            raise SettingsError(f"tables_memory: there are no {memory} bytes for packed anchors") from None
        self._packing: tuple[Packing, Future[None]] | None = None

    def _step(self, anchors: int) -> int:
        return max(self._generation, anchors // STEPS)

    @property
    def step(self) -> int:
        """With as many new anchors it is worth packing all of them anew."""
        return self._step(self.end - self.floor)

    @property
    def floor(self) -> int:
        """The first anchor."""
        return self._packed.first

    @property
    def end(self) -> int:
        """The number after the last anchor."""
        return self._packed.end

    def extend(self, end: int, *, wait: bool) -> None:
        """Come closer to answering for all anchors below `end`, and no more than `budget`.

        They are packed in the background; with `wait`, returns when all are.
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
        """What to pack: anchors that are not here yet, those apart that the cold tier must come for first."""
        packed = self._packed
        if packed.first == packed.end:
            packed.clear(packed.first)
        room = min(packed.first + self.budget, packed.oldest + packed.places)
        if packed.end >= min(end, room) or (room < end and room < packed.end + self.step):
            return None
        end = min(end, room, packed.end + max(self.step, self.budget // LOADS))
        return Packing(packed, end, partial(self._slices, packed.end, end))

    def _slices(self, start: int, end: int) -> Iterator[Slice]:
        for first, rows in self._log.slices(start, end):
            end = first + len(rows)
            yield first, rows, self._dead.masks(first, end, self._skipped.masks(first, end))

    def drop(self, floor: int) -> None:
        """Let go of anchors below `floor`."""
        if floor > self._packed.first:
            self._packed.drop(floor)

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        self._packed.search(probing, self._distance, self._dead.bits)
