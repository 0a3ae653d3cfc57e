"""What happened lately, by key: wrong tokens and looked-up pages of each client, pages near each anchor."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

MOST_KEYS: Final = 10_000
"""Keys that are remembered; of more, those of which nothing happened for the longest time are dropped."""


class RecentEvents:
    """Times of events of the last `seconds`, by key. `now` returns a time in seconds."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds, self._now = seconds, now
        self._events: dict[str, deque[float]] = {}

    def add(self, key: str) -> None:
        """Note an event."""
        times = self._events.pop(key, deque())
        times.append(self._now())
        self._events[key] = times  # moves the key to the end: the first ones are dropped first
        while len(self._events) > MOST_KEYS:
            del self._events[next(iter(self._events))]

    def take_back(self, key: str) -> None:
        """Drop the last event of a key, if it is remembered."""
        if self.count(key):
            self._events[key].pop()

    def count(self, key: str) -> int:
        """Return the number of recent events of a key."""
        times, since = self._events.get(key, deque()), self._now() - self._seconds
        while times and times[0] <= since:
            times.popleft()
        return len(times)

    def wait(self, key: str, most: int) -> int:
        """Return the seconds until a key has fewer than `most` recent events, rounded up; 0 if it has."""
        if self.count(key) < most:
            return 0
        return math.floor(self._events[key][-most] + self._seconds - self._now()) + 1

    @property
    def largest(self) -> int:
        """The largest number of recent events of one key."""
        for key in [key for key in self._events if not self.count(key)]:
            del self._events[key]
        return max(map(len, self._events.values()), default=0)
