"""The rank of candidates, by minima in words."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.tables.arrays import U64
from stream.tables.search.rank import abridged_minima, least_rank, ranks_of


def lowest_bits(words: U64) -> NDArray[np.int64]:
    """Seven of each minimum (9,)."""
    return np.array([int(word) >> 19 * place & 127 for word in words for place in range(3)])


@pytest.mark.parametrize("flips", [0, 1, 2, 5, 60])  # 1: each bit
def test_each_minimum_that_differs_counts_as_two_bits_of_distance(flips: int) -> None:
    rng = np.random.default_rng(flips)
    own = rng.integers(0, 1 << 64, 3, dtype=np.uint64)
    words = np.tile(own, (500, 1))
    flipped = rng.integers(0, 192, (len(words), flips))
    if flips == 1:
        flipped[:192, 0] = np.arange(192)
    for page, bits in enumerate(flipped.tolist()):
        for bit in bits:
            words[page, bit // 64] ^= np.uint64(1 << bit % 64)
    distance = rng.integers(0, 129, len(words))
    expected = [
        apart + 2 * sum((a ^ b) >> 19 * place & 0x7FFFF != 0 for a, b in pairs for place in range(3))
        for apart, pairs in zip(
            distance.tolist(),
            (list(zip(own.tolist(), other, strict=True)) for other in words.tolist()),
            strict=True,
        )
    ]
    first, all_pages = np.zeros(len(words), np.int64), np.arange(len(words))
    ranks = ranks_of(distance.astype(np.uint8), own[None], first, words, all_pages)
    assert ranks.tolist() == expected
    (short,), others = abridged_minima(own[None]), abridged_minima(words)
    least = [least_rank(*each) for each in zip(distance, np.full(500, short), others, strict=True)]
    unequal = np.array([lowest_bits(own) != lowest_bits(other) for other in words])
    assert least == (distance + 2 * unequal.sum(axis=1)).tolist()
    assert (np.array(least) <= expected).all()


def test_without_minima_the_rank_is_the_distance() -> None:
    words, distance = np.array([[1], [2]], np.uint64), np.array([5, 9])
    own, first = np.array([[7]], np.uint64), np.zeros(2, np.int64)
    assert ranks_of(distance.astype(np.uint8), own, first, words, np.arange(2)).tolist() == [5, 9]
    assert abridged_minima(words).tolist() == [0, 0]
