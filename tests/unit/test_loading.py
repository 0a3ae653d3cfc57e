"""The dashboard's view is loaded beside everything else, and whole, whatever comes between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stream.dashboard.counting.loading import ROWS, ViewLoading

MANY = 20 * ROWS


class FakeTables:
    """Two tables of numbers, and what was loaded of them."""

    def __init__(self) -> None:
        self.generation, self.loaded, self.cut = 1, list[int](), MANY
        self.loading = ViewLoading({"low", "high"}, self.loaded.clear, lambda: self.generation)

    async def recovered(self) -> list[bool]:
        return await asyncio.gather(
            self.loading.load("low", lambda: self.rows(0)), self.loading.load("high", lambda: self.rows(MANY))
        )

    def rows(self, first: int) -> Iterator[None]:
        for number in range(first, first + MANY):
            if number - first >= self.cut:
                raise RuntimeError("this database is closed")
            self.loaded.append(number)
            yield

    async def begun(self) -> None:
        """Return between two turns of a load that was asked for last."""
        for _ in range(3):
            if not self.loaded:
                await asyncio.sleep(0)
        assert self.loaded
        assert not self.whole

    @property
    def whole(self) -> bool:
        return sorted(self.loaded) == list(range(2 * MANY))


async def turns(of: list[int]) -> None:
    while True:
        of[0] += 1
        await asyncio.sleep(0)


async def test_others_have_their_turn_while_a_table_is_loaded() -> None:
    tables, counted = FakeTables(), [0]
    beside = asyncio.create_task(turns(counted))
    assert any(await tables.recovered())
    assert tables.whole
    assert counted[0] >= MANY // ROWS
    beside.cancel()


async def test_a_load_that_a_rebalance_interrupts_leaves_nothing() -> None:
    tables = FakeTables()
    interrupted = asyncio.create_task(tables.recovered())
    await tables.begun()
    tables.generation += 1
    assert any(await tables.recovered())  # beside the one before, which Faust does not end
    assert await interrupted == [False, False]
    assert tables.whole


async def test_a_load_begins_anew_after_each_recovery() -> None:
    tables = FakeTables()
    for _ in range(3):
        assert any(await tables.recovered())
        assert tables.whole


async def test_an_error_of_a_partition_that_went_is_none() -> None:
    tables = FakeTables()
    tables.cut = 3 * ROWS // 2
    interrupted = asyncio.create_task(tables.loading.load("low", lambda: tables.rows(0)))
    await tables.begun()
    tables.generation += 1
    assert not await interrupted
    tables.cut = ROWS // 2
    with pytest.raises(RuntimeError, match="closed"):
        await tables.loading.load("low", lambda: tables.rows(0))
