"""SimHash: the paper's definition, bit for bit, in integers."""

from __future__ import annotations

import math
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest

from stream.fingerprint.bit_sums_compiled import bit_sums_of_each
from stream.fingerprint.default_weights import features, weigh
from stream.fingerprint.keyed_hashes import hash_ranges, hash_tokens
from stream.fingerprint.parity_compiled import parity_sketches
from stream.fingerprint.scheme import UNCERTAIN_BITS, Scheme
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys
from stream.fingerprint.simhash import TIES, bit_sums, signs, simhash
from stream.fingerprint.sketch import shingles, sketch

KEYS = hash_keys(PUBLIC_SEED)


def by_hand(hashes: list[int], weights: list[int]) -> tuple[int, list[int]]:
    """The definition: +w for a 1, -w for a 0."""
    sums = [sum(w if h >> bit & 1 else -w for h, w in zip(hashes, weights, strict=True)) for bit in range(64)]
    ties = [TIES >> bit & 1 for bit in range(64)]
    return sum(1 << bit for bit, s in enumerate(sums) if s > 0 or (s == 0 and ties[bit])), sums


def test_one_feature_is_its_own_fingerprint() -> None:
    fingerprint, _ = simhash(np.array([0x0123456789ABCDEF], np.uint64), np.array([4096]))
    assert fingerprint == 0x0123456789ABCDEF


@pytest.mark.parametrize("n", [1, 2, 3, 100, 40_000])
def test_fingerprint_is_the_sign_of_each_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    hashes = rng.integers(0, 2**64, n, np.uint64)
    weights = weigh(rng.integers(1, 50, n))
    expected, sums = by_hand(hashes.tolist(), weights.tolist())
    fingerprint, uncertain = simhash(hashes, weights)
    assert fingerprint == expected
    assert bit_sums(hashes, weights).tolist() == sums
    assert list(uncertain) == sorted(range(64), key=lambda bit: (abs(sums[bit]), bit))[:UNCERTAIN_BITS]


def test_a_tie_takes_the_bit_of_the_fixed_word() -> None:
    opposite = np.array([0x00FF00FF12345678, 0xFF00FF00EDCBA987], np.uint64)
    fingerprint, uncertain = simhash(opposite, np.array([4096, 4096]))
    assert fingerprint == TIES
    assert list(uncertain) == list(range(UNCERTAIN_BITS))


def test_no_feature_gives_the_fixed_word() -> None:
    assert simhash(np.empty(0, np.uint64), np.empty(0, np.int64))[0] == TIES


def test_weights_are_rounded_square_roots_of_up_to_four_occurrences() -> None:
    counts = np.arange(1, 3000)
    assert weigh(counts).tolist() == [round(4096 * math.sqrt(min(tf, 4))) for tf in counts.tolist()]


def test_features_are_distinct_hashes_with_the_weight_of_their_count() -> None:
    distinct, weights = features(hash_tokens([b"a", b"b", b"a", b"a", b"a"], KEYS))
    assert dict(zip(distinct.tolist(), weights.tolist(), strict=True)) == {
        hash_by_hand("a"): 8192,
        hash_by_hand("b"): 4096,
    }


def test_sums_beyond_32_bits_are_exact() -> None:
    hashes = np.array([2**64 - 1, 0], np.uint64)
    assert set(bit_sums(hashes, np.array([2**51 + 1, 2**51])).tolist()) == {1}


def hash_by_hand(word: str, seed: bytes = PUBLIC_SEED) -> int:
    """SipHash-1-3 of a key and the sum of each character's code point + 1 times its own odd factor, which are
    the outputs of SplitMix64."""
    derived = blake2b(key=seed, person=b"neardup.tokens", digest_size=32).digest()
    state, value, left, right = (int.from_bytes(derived[at : at + 8], "little") for at in (0, 8, 16, 24))
    for place, character in enumerate(word):
        value += (ord(character) + 1) * (mixed(state + (place + 1) * 0x9E3779B97F4A7C15) | 1)
    return sip_by_hand(value % 2**64, left, right)


def sip_by_hand(word: int, left: int, right: int) -> int:
    """The algorithm of the paper, section 2.2, for one word, and without the block of the length."""
    state = [int.from_bytes(b"somepseudorandomlygeneratedbytes"[at : at + 8], "big") for at in (0, 8, 16, 24)]
    state = [each ^ key for each, key in zip(state, (left, right, left, right), strict=True)]
    state[3] ^= word
    sip_round(state)
    state[0] ^= word
    state[2] ^= 0xFF
    for _ in range(3):
        sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def sip_round(v: list[int]) -> None:
    for a, b, turn in ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17)):
        v[a] = (v[a] + v[b]) % 2**64
        v[b] = (v[b] << turn | v[b] >> 64 - turn) % 2**64 ^ v[a]
        if turn in (13, 17):
            v[a] = (v[a] << 32 | v[a] >> 32) % 2**64


def mixed(value: int) -> int:
    value %= 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize("gap", [1, 40_000])
def test_a_token_hash_does_not_depend_on_its_place(kind: type, gap: int) -> None:
    words = ["order", "once", "a" * 50_000, "once", "z", "order" * 3]
    text = (" " * gap).join(words)
    starts = [sum(len(word) + gap for word in words[:i]) for i in range(len(words))]
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    found = hash_ranges(np.array(list(map(ord, text)), kind), np.array(starts), np.array(ends), KEYS)
    assert found.tolist() == [hash_by_hand(word) for word in words]


def test_different_words_have_different_hashes() -> None:
    rng = np.random.default_rng(3)
    points = rng.integers(0x4E00, 0x5200, 200_000).astype(np.uint32)
    for length in (1, 2, 3, 7):
        starts = np.arange(0, points.size - length, length)
        distinct = {points[start : start + length].tobytes() for start in starts.tolist()}
        assert np.unique(hash_ranges(points, starts, starts + length, KEYS)).size == len(distinct)


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


@pytest.mark.parametrize("bins", [1024, 2048])
def test_many_texts_have_the_sketches_of_each(bins: int) -> None:
    rng = np.random.default_rng(6)
    scheme = Scheme(sketch_bins=bins)
    sizes = [
        0,
        1,
        2,
        3,
        4,
        30,
        130,
        bins * 7 // 40 + 2,
        bins * 7 // 40 + 3,
        bins * 5 // 2 + 2,
        bins * 5 // 2 + 3,
        9000,
        40_000,
        5,
    ]
    bounds = np.cumsum([0, *sizes])
    units = rng.integers(0, 2**32, bounds[-1], np.uint32)
    units[bounds[11] : bounds[12]] %= 20  # with repetitions
    expected = [sketch(shingles(units[a:b], 3), scheme) for a, b in pairwise(bounds.tolist())]
    assert [row.tobytes() for row in parity_sketches(units, bounds, 3, bins)] == expected
