"""Long chains of the hot tier as contiguous arrays.

Following a chain costs a NumPy round an element for the whole batch; a bucket of 5 000 would cost 20 times
a batch. Chains beyond a few rounds are therefore kept as arrays, extended by what is new when next asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from stream.tables.candidates import I64
from stream.tables.design import U64

LONGEST_CHAIN: Final = 24
"""Rounds before a chain counts as long (measured)."""
CACHED: Final = 1 << 22
"""Most cached elements: 64 MiB."""


class Chain:
    """Numbers and fingerprints of one chain, oldest first."""

    __slots__ = ("_anchors", "_fingerprints", "newest", "size")

    def __init__(self) -> None:
        self.newest = 0
        """Number + 1 of the newest cached anchor."""
        self.size = 0
        self._anchors = np.empty(64, np.int64)
        self._fingerprints = np.empty(64, np.uint64)

    def extend(self, anchors: I64, fingerprints: U64) -> None:
        """Add newer anchors, oldest first."""
        size = self.size + len(anchors)
        if size > len(self._anchors):
            self._anchors = np.resize(self._anchors, 2 * size)
            self._fingerprints = np.resize(self._fingerprints, 2 * size)
        self._anchors[self.size : size] = anchors
        self._fingerprints[self.size : size] = fingerprints
        self.size = size
        self.newest = int(anchors[-1]) + 1

    @property
    def anchors(self) -> I64:
        """Shape (size,)."""
        return self._anchors[: self.size]

    @property
    def fingerprints(self) -> U64:
        """Shape (size,)."""
        return self._fingerprints[: self.size]


class Chains:
    """Cached chains by slot. Forget them all when anchors leave the tier or slots are renumbered."""

    def __init__(self) -> None:
        self._chains: dict[int, Chain] = {}
        self._cached = 0

    def clear(self) -> None:
        """Forget all."""
        self._chains.clear()
        self._cached = 0

    def get(self, slot: int, head: int, walk: Callable[[int], tuple[I64, U64]]) -> Chain:
        """The chain of a slot whose newest element is `head`; `walk(newest)` gives what is newer."""
        chain = self._chains.get(slot)
        if chain is None:
            if self._cached > CACHED:
                self.clear()
            chain = self._chains[slot] = Chain()
        if chain.newest != head:
            before = chain.size
            chain.extend(*walk(chain.newest))
            self._cached += chain.size - before
        return chain
