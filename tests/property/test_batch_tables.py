"""A batch matched against a corpus in chunks finds the pairs of brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream.errors import SettingsError
from stream.offline.batch_tables import BatchTables, layout_for, match
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from stream.offline.prefix_tables import PAIRS_AT_FIRST
from tests.fingerprint_sets import as_integers, flip_bits, random_set


def brute_force(stored: list[int], queries: list[int], distance: int) -> list[tuple[int, int, int]]:
    return [
        (row, place, (query ^ held).bit_count())
        for row, query in enumerate(queries)
        for place, held in enumerate(stored)
        if (query ^ held).bit_count() <= distance
    ]


def listed(found: Pairs) -> list[tuple[int, int, int]]:
    return list(zip(found.row.tolist(), found.stored.tolist(), found.distance.tolist(), strict=True))


def scanned(tables: BatchTables, corpus, chunk: int, threads: int) -> Pairs:
    starts = range(0, len(corpus), chunk)
    found = match(tables, ((corpus[start : start + chunk], start) for start in starts), threads)
    return Pairs.merge([Pairs(pairs.row, pairs.stored + start, pairs.distance) for pairs, _, start in found])


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("distance", [0, 3, 6])
@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_are_those_of_brute_force(width: int, distance: int, threads: int) -> None:
    rng = np.random.default_rng(width + distance)
    batch, corpus = random_set(rng, 300, width), random_set(rng, 2000, width)
    corpus[500:800] = flip_bits(rng, batch, width, np.arange(300) % (distance + 2))
    corpus[900:910] = batch[0]
    batch[200:205] = batch[0]
    wanted = brute_force(as_integers(corpus), as_integers(batch), distance)
    assert len(wanted) >= 200
    assert listed(scanned(BatchTables(batch, width, distance), corpus, 333, threads)) == wanted


@pytest.mark.parametrize("layout", ["4 choose 1", "6choose3", "4 then 4"])
def test_every_layout_finds_the_same(layout: str) -> None:
    rng = np.random.default_rng(1)
    batch = random_set(rng, 2000, 64)
    corpus = flip_bits(rng, batch, 64, np.arange(2000) % 5)
    found = scanned(BatchTables(batch, 64, 3, Layout.parse(layout)), corpus, 700, 2)
    distance = np.arange(2000) % 5
    assert found.row.tolist() == found.stored.tolist() == np.flatnonzero(distance <= 3).tolist()
    assert found.distance.tolist() == distance[distance <= 3].tolist()


def test_a_larger_batch_gets_longer_prefixes() -> None:
    assert [layout_for(n, 64, 3).name for n in (100, 1_000_000, 100_000_000)] == [
        "4 choose 1",
        "5 choose 2",
        "6 choose 3",
    ]


def test_empty_sides_have_no_pairs() -> None:
    none, some = np.zeros(0, np.uint64), np.zeros(5, np.uint64)
    assert len(scanned(BatchTables(none, 64, 3), some, 2, 1)) == 0
    assert len(scanned(BatchTables(some, 64, 3), none, 2, 1)) == 0


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda some: BatchTables(some, 64, 4, Layout.choose(5, 2)), "5 choose 2 finds every pair up to 3"),
        (lambda _: Layout.parse("40 choose 20"), "layout: 40 choose 20 makes"),
        (lambda _: Layout.parse("2 choose 3"), "layout: 2 choose 3"),
        (lambda _: Layout.parse("65 then 1"), "layout: 65 then 1 blocks do not fit"),
        (lambda _: Layout.parse("65 then 64", 128), "layout: 65 then 64"),
        (lambda _: Layout.parse("5 of 2"), "'5 of 2' is not a layout such as"),
        (lambda some: BatchTables(some.astype(np.int64), 64, 3), "uint64"),
        (lambda some: BatchTables(some.reshape(1, 2), 64, 3), "shape"),
        (lambda some: BatchTables(some, 128, 3), "shape"),
        (lambda some: BatchTables(some + np.uint64(1 << 33), 32, 3), "more than 32 bits"),
        (lambda some: BatchTables(some, 48, 3), "width"),
    ],
)
def test_layouts_and_arrays_that_cannot_be_are_refused(refused: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        refused(np.zeros(2, np.uint64))


@pytest.mark.parametrize("width", [64, 128])
def test_copies_of_one_page_give_more_pairs_than_there_is_room_for_at_once(width: int) -> None:
    rng = np.random.default_rng(width)
    batch = np.repeat(random_set(rng, 1, width), 700, axis=0)
    corpus = flip_bits(rng, batch, width, np.arange(700) % 5)
    assert PAIRS_AT_FIRST < 700 * 560
    found, compared = BatchTables(batch, width, 3).scan(corpus)
    assert found.row.tolist() == np.repeat(np.arange(700), 560).tolist()
    assert found.stored.tolist() == np.flatnonzero(np.arange(700) % 5 <= 3).tolist() * 700
    assert compared >= len(found)
