"""How the memory of an index is divided among its tiers.

That of all tables is `tables_memory`, of which triples of minima have a share (`TRIPLES_SHARE`).

Each tier keeps to its share. Beside it the hot tier holds its anchors, at most a generation and one step of
repacking, and RocksDB has a cache of its own (`tables_cache`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

HEADS_SHARE: Final = 1 / 16
PRESENCE_SHARE: Final = 1 / 16
PACKED_SHARE: Final = 1 - HEADS_SHARE - PRESENCE_SHARE
LEAST_PRESENCE: Final = 64 << 20
"""Bytes allowed for all presence bitmaps together, even if the setting allows less."""


class MemoryShares(NamedTuple):
    """Bytes of each tier."""

    heads: int
    """Hot tier: the heads of chains, without its anchors."""
    packed: int
    """Warm tier: packed anchors."""
    presence: int
    """Cold tier: bitmaps that tell which groups RocksDB has, of all runs together."""

    @classmethod
    def of(cls, memory: int) -> MemoryShares:
        """Divide `memory` bytes."""
        heads, presence = int(memory * HEADS_SHARE), int(memory * PRESENCE_SHARE)
        return cls(heads, memory - heads - presence, max(presence, LEAST_PRESENCE))
