"""How the memory of an index is divided among its tiers.

That of all tables is `tables_memory`, of which reserves have a share (`RESERVES_SHARE`).

Each tier keeps to its share. Beside it the hot tier holds its anchors, at most a generation and one step of
repacking, and RocksDB has a cache of its own (`tables_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

HEADS_SHARE: Final = 1 / 16
PRESENCE_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 13 / 16)
"""Shares of presence filters. A larger one is taken from packed anchors as soon as filters need it: an anchor
takes ten times as much memory packed as in filters, without which every probe reads RocksDB."""
PACKED_SHARE: Final = 1 - HEADS_SHARE - PRESENCE_SHARES[0]
LEAST_PRESENCE: Final = 64 << 20
"""Bytes allowed for all presence filters together, even if the setting allows less."""


class MemoryShares(NamedTuple):
    """Bytes of each tier."""

    heads: int
    """Hot tier: the heads of chains, without its anchors."""
    packed: int
    """Warm tier: packed anchors."""
    presence: int
    """Cold tier: filters that tell which groups RocksDB has, of all runs together."""

    @classmethod
    def of(cls, memory: int, presence_share: float = PRESENCE_SHARES[0]) -> MemoryShares:
        """Divide `memory` bytes."""
        heads, presence = int(memory * HEADS_SHARE), int(memory * presence_share)
        return cls(heads, memory - heads - presence, max(presence, LEAST_PRESENCE))

    @classmethod
    def choices(cls, memory: int) -> list[MemoryShares]:
        """All ways to divide `memory` bytes, those with the least for presence filters first."""
        return [cls.of(memory, share) for share in PRESENCE_SHARES]

    @classmethod
    def for_filters(
        cls, memory: int, anchors: int, bits: int, packed_in: Callable[[int], int]
    ) -> MemoryShares:
        """Return the division with the least memory for filters that has so many bits an anchor for them,
        else the one with the most. `packed_in` tells how many anchors are packed into a number of bytes."""
        choices = cls.choices(memory)
        for shares in choices:  # for all but the first, the warm tier is emptied
            cold = anchors - (packed_in(shares.packed) if shares == choices[0] else 0)
            if cold * bits <= 8 * shares.presence:
                return shares
        return choices[-1]
