"""What a limited search keeps: of each page the candidates of the least rank, of equal rank the oldest."""

from __future__ import annotations

import numpy as np
import pytest

from stream.compiled import compiled
from stream.tables.arrays import I64
from stream.tables.search.nearest import ALL, KEPT_AT_ONCE, Kept, Nearest, keep_alive, kept_pairs

FIRST = 7_000
"""Number of the first anchor."""


@compiled
def keep_all(kept: Kept, query: I64, rank: I64, number: I64, apart: I64) -> None:
    for i in range(len(query)):
        keep_alive(kept, query[i], rank[i], number[i], apart[i])


@pytest.mark.parametrize("most", [1, 3, 65, 1000])
def test_the_nearest_that_are_alive_are_kept_once(most: int) -> None:
    rng, pages, found = np.random.default_rng(most), 5, 2_000
    page_of = rng.integers(0, pages, 40)  # queries, as triples of pages
    mortal = np.sort(rng.choice(300, 50, replace=False))
    limit = Nearest(most, rng.integers(3, 15, pages), mortal + FIRST, rng.integers(0, pages + 1, 50))
    query, number = rng.integers(0, len(page_of), found), rng.integers(0, 300, found)
    page = page_of[query]
    apart = (3 * number + page) % 17  # a function of page and anchor, as ranks are
    rank = apart + 2 * (number % 5)
    kept = Kept.begin(limit, pages, FIRST)._replace(page=page_of)
    keep_all(kept, query, rank, number, apart)
    dies = dict(zip(mortal.tolist(), limit.dies.tolist(), strict=True))
    expected = []
    for own in range(pages):
        alive = {
            (int(rank[i]), int(number[i]), int(apart[i]))
            for i in np.flatnonzero((page == own) & (apart <= limit.within[page]))
            if dies.get(int(number[i]), pages) > own
        }
        expected += sorted(own << 40 | of << 8 | bits for _, of, bits in sorted(alive)[:most])
    assert expected
    assert kept_pairs(kept).tolist() == expected


def test_without_a_limit_nothing_is_kept() -> None:
    assert not ALL.limits
    assert not Kept.begin(ALL, 5, 0).limits
    assert Kept.begin(ALL._replace(most=KEPT_AT_ONCE), 1, 0).limits
    assert not len(Kept.begin(ALL._replace(most=KEPT_AT_ONCE + 1), 1, 0).pairs)
