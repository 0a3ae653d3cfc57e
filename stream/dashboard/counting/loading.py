"""Loads the in-memory view from the tables after a recovery, without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

ROWS: Final = 500
"""Rows loaded before other tasks run (8 ms). Tens of millions of rows take minutes, in which `/livez` must
answer."""


class ViewLoading:
    """Tracks the loading of all tables.

    Faust calls back for all tables concurrently after each recovery, hence after each rebalance. It does not
    cancel earlier callbacks that are still running.
    """

    def __init__(self, names: set[str], forget: Callable[[], None], generation: Callable[[], int]) -> None:
        """`forget` clears the view; `generation` returns the generation of the group's assignment."""
        self._names, self._forget, self._generation = names, forget, generation
        self._round = 0
        self._calls: set[str] = set()
        self._loaded: set[str] = set()

    async def load(self, name: str, rows: Callable[[], Iterator[None]]) -> bool:
        """Load one table by iterating `rows`. Returns whether all tables are loaded now.

        Gives up after a rebalance, because Faust then calls it again.
        """
        if name in self._calls:
            self._round += 1
            self._calls.clear()
            self._loaded.clear()
            self._forget()
        self._calls.add(name)
        began = self._round, self._generation()
        try:
            for place, _ in enumerate(rows(), 1):
                if place % ROWS == 0:
                    await asyncio.sleep(0)
                    if (self._round, self._generation()) != began:
                        return False
        except Exception:
            if (self._round, self._generation()) != began:  # the rows of a revoked partition
                return False
            raise
        self._loaded.add(name)
        return self._loaded == self._names
