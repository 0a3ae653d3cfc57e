"""The warm tier: anchors that the hot tier let go, packed in RAM for as long as the memory lasts.

What it holds is in RocksDB too. Anchors come by generations, as `Packed` spans, which become ever larger ones
up to a sixth of all: a search takes a look at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from stream.tables.anchors import AnchorLog, Dead, Skipped
from stream.tables.design import Design
from stream.tables.packed import Packed, Slice
from stream.tables.probing import Probing

SPANS: Final = 6
"""Largest spans that the memory has room for, at least. The oldest is held until all of it has left, and for
a moment, while one is made of two, there is one more: together up to a sixth beyond `memory`."""


class WarmTier:
    """Answers for the anchors [floor, end).

    `memory` are bytes; `background` has one thread.
    """

    def __init__(
        self, design: Design, log: AnchorLog, skipped: Skipped, dead: Dead, background: ThreadPoolExecutor,
        *, distance: int, memory: int, generation: int,
    ) -> None:  # fmt: skip
        self._design = design
        self._log = log
        self._skipped = skipped
        self._dead = dead
        self._background = background
        self._distance = distance
        self._largest = generation
        while memory // Packed.bytes(design, 2 * self._largest) >= SPANS:
            self._largest *= 2
        spans = memory / Packed.bytes(design, self._largest)
        self.budget: Final = int(spans * self._largest / generation) * generation
        """Anchors that the memory has room for, of whole generations."""
        self.floor = self.end = 0
        self._spans: list[Packed] = []
        self._making: tuple[Packed, Future[None]] | None = None
        self._closed = False

    def extend(self, end: int, *, wait: bool) -> None:
        """Come closer to answering for all anchors below `end`, of whole generations and no more than
        `budget`, in few spans.

        Spans are made in the background; with `wait`, returns when all are.
        """
        while True:
            if self._making is not None:
                span, made = self._making
                if not (wait or made.done()):
                    return
                made.result()
                self._making = None
                self._take(span)
            bounds = self._due(end)
            if bounds is None:
                return
            span = Packed(self._design, *bounds)
            self._making = span, self._background.submit(span.fill, partial(self._slices, span))

    def _due(self, end: int) -> tuple[int, int] | None:
        """Bounds of the next span to make: of anchors that are not here yet, or of two spans."""
        end = min(end, self.floor + self.budget)  # what is beyond it comes once the cold tier has the oldest
        if self.end < end:
            return self.end, min(end, self.end + self._largest)
        if len(self._spans) > 1:
            last, before = self._spans[-1], self._spans[-2]
            if (
                before.end - before.first <= last.end - last.first
                and last.end - before.first <= self._largest
            ):
                return before.first, last.end
        return None

    def _take(self, span: Packed) -> None:
        """It may be that nothing of it, or not all, is still of use."""
        self._spans = [kept for kept in self._spans if kept.end <= span.first]
        if span.end > self.floor:
            self._spans.append(span)
            self.end = span.end

    def _slices(self, span: Packed) -> Iterator[Slice]:
        for first, rows in self._log.slices(span.first, span.end):
            if self._closed:
                return
            yield first, rows, self._skipped.masks(first, first + len(rows))

    def drop(self, floor: int) -> None:
        """Let go of anchors below `floor`."""
        if floor > self.floor:
            self.floor = floor
            self.end = max(self.end, floor)
            self._spans = [span for span in self._spans if span.end > floor]

    def search(self, probing: Probing) -> None:
        """Add this tier's pairs and bucket sizes to `probing`."""
        for span in self._spans:
            span.search(probing, self.floor, self._distance, self._dead.bits)

    def close(self) -> None:
        """Make no more spans."""
        self._closed = True
