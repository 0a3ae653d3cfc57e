"""A bounded cache that evicts the least recently used entry."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """A cache of at most `most` entries, by key. The least recently used one is evicted first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the cached value, or None."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Cache a value, evicting others if there are too many."""
        self._entries.pop(key, None)
        while len(self._entries) >= self._most:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value
