"""All pairs within one set against five lines of brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from stream.errors import SettingsError
from stream.offline.all_pairs import all_pairs
from stream.offline.layouts import Layout
from tests.fingerprint_sets import as_integers, flip_bits, random_set


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("distance", [0, 1, 3, 7])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_pairs_equal_brute_force(width: int, distance: int, threads: int) -> None:
    rng = np.random.default_rng(width + distance)
    held = random_set(rng, 300, width)
    held[100:200] = flip_bits(rng, held[:100], width, np.arange(100) % (distance + 2))
    held[200:210] = held[0]  # more than two that are equal
    values = as_integers(held)
    wanted = [
        (a, b, (values[a] ^ values[b]).bit_count())
        for a, b in combinations(range(len(values)), 2)
        if (values[a] ^ values[b]).bit_count() <= distance
    ]
    found, compared = all_pairs(held, width, distance, threads=threads)
    assert (
        list(zip(found.row.tolist(), found.stored.tolist(), found.distance.tolist(), strict=True)) == wanted
    )
    assert compared >= len(wanted)


@pytest.mark.parametrize("count", [0, 1])
def test_sets_without_two_have_no_pairs(count: int) -> None:
    assert len(all_pairs(np.zeros(count, np.uint64), 64, 3)[0]) == 0


def test_prefixes_too_long_to_be_packed_with_their_rows_find_the_same() -> None:
    rng = np.random.default_rng(0)
    held = random_set(rng, 400, 128)
    held[200:] = flip_bits(rng, held[:200], 128, np.arange(200) % 4)
    long, short = Layout.choose(4, 1, 128), Layout.choose(8, 5, 128)
    assert max(map(short.key_bits, range(short.tables))) == 64
    packed, sorted_by_argument = (all_pairs(held, 128, 3, layout=each)[0] for each in (long, short))
    assert packed.row.tolist() == sorted_by_argument.row.tolist()
    assert packed.stored.tolist() == sorted_by_argument.stored.tolist()


def test_a_layout_that_would_miss_pairs_is_refused() -> None:
    with pytest.raises(SettingsError, match="5 choose 2 finds every pair up to 3 bits"):
        all_pairs(np.zeros(2, np.uint64), 64, 4, layout=Layout.choose(5, 2))
