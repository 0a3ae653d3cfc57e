"""Loading the view from the tables after a recovery, beside everything else that the event loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

ROWS: Final = 500
"""Rows between two turns of the others: 8 ms. Tens of millions take minutes, in which `/livez` is asked."""


class Loading:
    """What Faust calls when the tables are recovered: again after each rebalance, all tables at once, without
    ending what it began before."""

    def __init__(self, names: set[str], forget: Callable[[], None], generation: Callable[[], int]) -> None:
        """`forget` drops what was loaded; `generation` is that of the assignment."""
        self._names, self._forget, self._generation = names, forget, generation
        self._round = 0
        self._begun: set[str] = set()
        self._loaded: set[str] = set()

    async def load(self, name: str, rows: Callable[[], Iterator[None]]) -> bool:
        """Load one table, row by row; whether all are loaded now. Gives up when partitions come or go: then
        it is called again."""
        if name in self._begun:
            self._round += 1
            self._begun.clear()
            self._loaded.clear()
            self._forget()
        self._begun.add(name)
        began = self._round, self._generation()
        try:
            for place, _ in enumerate(rows(), 1):
                if place % ROWS == 0:
                    await asyncio.sleep(0)
                    if (self._round, self._generation()) != began:
                        return False
        except Exception:
            if (self._round, self._generation()) != began:  # a partition went, and its rows
                return False
            raise
        self._loaded.add(name)
        return self._loaded == self._names
