"""SimHash: the paper's definition, bit for bit, in integers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.fingerprint.bit_sums_compiled import bit_sums_of_each
from stream.fingerprint.default_weights import features, weigh
from stream.fingerprint.keyed_hashes import hash_ranges
from stream.fingerprint.lanes import distances, from_integers
from stream.fingerprint.parity_compiled import parity_sketches
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys
from stream.fingerprint.simhash import TIES, bit_sums, signs, simhash
from stream.fingerprint.sketch import shingles, sketch
from tests.plain_fingerprint import token_hash

KEYS = hash_keys(PUBLIC_SEED)


def test_weights_are_rounded_square_roots_of_up_to_four_occurrences() -> None:
    counts = np.arange(1, 3000)
    assert weigh(counts).tolist() == [round(4096 * math.sqrt(min(tf, 4))) for tf in counts.tolist()]


@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize("gap", [1, 40_000])
def test_a_token_hash_does_not_depend_on_its_place(kind: type, gap: int) -> None:
    words = ["order", "once", "a" * 50_000, "once", "z", "order" * 3]
    text = (" " * gap).join(words)
    starts = [sum(len(word) + gap for word in words[:i]) for i in range(len(words))]
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    found = hash_ranges(np.array(list(map(ord, text)), kind), np.array(starts), np.array(ends), KEYS)
    assert found.tolist() == [token_hash(word, PUBLIC_SEED) for word in words]


def test_many_texts_have_the_fingerprints_of_each() -> None:
    rng = np.random.default_rng(4)
    sizes = [0, 1, 3000, 7, 0, 200]
    bounds = np.cumsum([0, *sizes])
    hashes = rng.integers(0, 40, bounds[-1], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes[4:3000] = rng.integers(0, 2**64, 2996, np.uint64)
    expected = [simhash(*features(hashes[a:b])) for a, b in pairwise(bounds.tolist())]
    sums, counts = bit_sums_of_each(hashes, bounds)
    assert signs(sums, TIES) == expected
    assert counts.tolist() == [np.unique(hashes[a:b]).size for a, b in pairwise(bounds.tolist())]


def test_sums_of_heavy_features_are_exact() -> None:
    """Weights of a feature that occurs a million times, beside 300 000 others: sums beyond 32 bits."""
    rng = np.random.default_rng(5)
    hashes = rng.integers(0, 2**64, 1_300_000, np.uint64)
    hashes[300_000:] = hashes[0]
    sums, counts = bit_sums_of_each(hashes, np.array([0, hashes.size]))
    assert counts.tolist() == [300_000]
    assert np.array_equal(sums[0], bit_sums(*features(hashes)))


def test_sums_beyond_32_bits_are_exact() -> None:
    hashes = np.array([2**64 - 1, 0], np.uint64)
    assert set(bit_sums(hashes, np.array([2**51 + 1, 2**51])).tolist()) == {1}


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**40)),
        max_size=60,
        unique_by=lambda each: each[0],
    )
)
def test_sums_are_the_definition(rows: list[tuple[int, int]]) -> None:
    hashes, weights = np.array([h for h, _ in rows], np.uint64), np.array([w for _, w in rows], np.int64)
    expected = [sum(w if h >> bit & 1 else -w for h, w in rows) for bit in range(64)]
    assert bit_sums(hashes, weights).tolist() == expected


@pytest.mark.parametrize("bins", [1024, 2048])
def test_many_texts_have_the_sketches_of_each(bins: int) -> None:
    rng = np.random.default_rng(6)
    scheme = Scheme(sketch_bins=bins)
    listed, halved = bins * 7 // 40 + 2, bins * 5 // 2 + 2
    sizes = [0, 1, 2, 3, 4, 30, 130, listed, listed + 1, halved, halved + 1, 9000, 40_000, 5]
    bounds = np.cumsum([0, *sizes])
    units = rng.integers(0, 2**32, bounds[-1], np.uint32)
    units[bounds[11] : bounds[12]] %= 20  # with repetitions
    expected = [sketch(shingles(units[a:b], 3), scheme) for a, b in pairwise(bounds.tolist())]
    assert [row.tobytes() for row in parity_sketches(units, bounds, 3, bins)] == expected


def test_distances_of_every_width() -> None:
    values = [0, 1, 2**64 - 1, 2**127 | 1]
    wide = from_integers(values, 128)
    assert wide.shape == (4, 2)
    assert distances(wide, wide[:1]).tolist() == [0, 1, 64, 2]
    narrow = from_integers(values[:3], 64)
    assert distances(narrow[:1], narrow).tolist() == [0, 1, 64]
    assert from_integers([], 128).shape == (0, 2)
