"""Sketches estimate Jaccard similarity for texts of any length, and readers of the journal can compute it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stream.fingerprint.parity import LARGEST_SET
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs, similarities, sketch
from stream.fingerprint.small_sets import largest_counted, low_bits
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from tests.oracle import Oracle, OraclePage

PARITY = Scheme()
SCHEMES = [
    PARITY,
    Scheme(sketch_bins=960),
    Scheme(sketch="minhash", sketch_bins=1024),
    Scheme(sketch="minhash", sketch_bins=1024, sketch_bits=2),
    Scheme(sketch="minhash", sketch_bins=192, sketch_bits=8),
]


def estimate(a: np.ndarray, b: np.ndarray, scheme: Scheme) -> float:
    one, two = (np.frombuffer(sketch(x, scheme), "<u8")[None] for x in (a, b))
    return int(similarities(SketchPairs.of(one, two), scheme)[0]) / 10_000


def two_sets(rng: np.random.Generator, common: int, a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    both, one, two = (rng.integers(0, 2**32, size, np.uint32) for size in (common, a, b))
    return np.append(both, one), np.append(both, two)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n", [1, 2, 5, 40, 1000, 20_000])
def test_estimate_is_near_the_truth(scheme: Scheme, n: int) -> None:
    rng = np.random.default_rng(n)
    each = n // 10
    truth = n / (n + 2 * each)
    errors = [estimate(*two_sets(rng, n, each, each), scheme) - truth for _ in range(12)]
    chance = 2.0**-scheme.sketch_bits
    deviation = (0.25 / scheme.sketch_bins) ** 0.5 / (1 - chance)
    assert abs(np.mean(errors)) < 4 * deviation / 12**0.5
    assert np.max(np.abs(errors)) < 4.5 * deviation


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_sets_have_similarity_one_however_often_a_shingle_repeats(scheme: Scheme) -> None:
    hashes = np.random.default_rng(4).integers(0, 2**32, 700, np.uint32)
    assert estimate(hashes, np.append(hashes[::-1], hashes[:300]), scheme) == 1
    assert estimate(hashes[:0], hashes[:0], scheme) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_sketch_is_compared_with_many(scheme: Scheme) -> None:
    rng = np.random.default_rng(2)
    sets = [rng.integers(0, 2**32, 500, np.uint32), *two_sets(rng, 500, 30, 60)]
    rows = np.stack([np.frombuffer(sketch(each, scheme), "<u8") for each in sets])
    assert rows.shape == (3, scheme.sketch_bytes // 8)
    alone = [int(similarities(SketchPairs.of(rows[1:2], row[None]), scheme)[0]) for row in rows]
    assert similarities(SketchPairs.of(rows[1], rows), scheme).tolist() == alone
    assert similarities(SketchPairs.of(rows, rows[1:2]), scheme).tolist() == alone
    assert alone[1] == 10_000


@pytest.mark.parametrize("n", [1, 2, 5, 40, 120])
def test_rule_19_similarity_of_small_sets_is_counted(n: int) -> None:
    rng = np.random.default_rng(n)
    for only in (0, 1, n // 9, n):
        a, b = two_sets(rng, n, only, only // 2)
        assert estimate(a, b, PARITY) == n * 10_000 // (n + only + only // 2) / 10_000


@pytest.mark.parametrize(
    ("size", "share"),
    [(100, 2e-5), (141, 9e-4), (150, 1e-3), (200, 0.016), (250, 0.1), (300, 0.25), (336, 0.31)],
)
def test_rule_19_lists_name_as_many_pairs_alike_below_the_limit_as_is_documented(
    size: int, share: float
) -> None:
    rng = np.random.default_rng(size)
    least = next(common for common in range(size) if 10 * common >= 8 * (2 * size - common))
    rule, rows = Rule(VerdictOptions(), PARITY), np.arange(700)
    for common in (least - 1, least):
        a, b = (
            np.array([np.frombuffer(sketch(each, PARITY), "<u8") for each in side])
            for side in zip(*(two_sets(rng, common, *[size - common] * 2) for _ in rows), strict=True)
        )
        found, truth = rule.similarities(SketchPairs.of(a, b)), common * 10_000 // (2 * size - common)
        assert found.min() == truth, "never too low"
        assert found.max() < truth + 250
        alike = np.mean(found >= rule.least(SketchPairs(a, rows, b, rows)))
        if common == least:
            assert alike == 1
        else:
            assert abs(alike - share) <= 4 * (share * (1 - share) / len(rows)) ** 0.5 + 1 / len(rows)
        assert rule.counted(SketchPairs(a, rows, b, rows)).all() == (size <= 141)


@pytest.mark.parametrize(("bins", "size"), [(64, 7), (192, 18), (1920, 141), (8192, 551)])
def test_rule_19_lists_are_counted_up_to_the_size_at_which_one_in_1000_is_wrong(bins: int, size: int) -> None:
    assert largest_counted(bins) == size
    equal = [(n / 9) ** 2 / (bins // 8 << int(low_bits(bins)[n])) for n in (size, size + 1)]
    assert equal[0] <= 1e-3 < equal[1]


def test_bytes_that_are_no_sketch_have_a_similarity() -> None:
    """Whoever can write to the journal can write any bytes in the place of a sketch."""
    rng = np.random.default_rng(0)
    listed = low_bits(1920).size
    sizes = [0, 1, 2, 100, listed - 1, listed, 3840, 10**6, LARGEST_SET - 1, LARGEST_SET]
    bits = [np.zeros(30, np.uint64), np.full(30, 2**64 - 1, np.uint64), rng.integers(0, 2**64, 30, np.uint64)]
    every = np.array([[*some, size, 0] for some in bits for size in sizes], np.uint64)
    for one in every:
        found = similarities(SketchPairs.of(one, every), PARITY)
        assert found.min() >= 0
        assert found.max() <= 10_000


def documented(one: bytes, two: bytes, scheme: Scheme) -> int:
    """The similarity of two sketches by `schemas/journal.md`."""
    if scheme.sketch == "minhash":
        return of_minima(one, two, scheme)
    oracle, pages = Oracle(bins=scheme.sketch_bins), [OraclePage(0, None, sketch=each) for each in (one, two)]
    return int(oracle.by_sketches(*pages, max(oracle.size(one), oracle.size(two))))


def of_minima(one: bytes, two: bytes, scheme: Scheme) -> int:
    bins, values, unequal = scheme.sketch_bins, 2**scheme.sketch_bits, 0
    for plane in range(0, bins // 8 * scheme.sketch_bits, bins // 8):
        a, b = (int.from_bytes(each[plane : plane + bins // 8]) for each in (one, two))
        unequal |= a ^ b
    return max(0, 10_000 * ((bins - unequal.bit_count()) * values - bins) // (bins * (values - 1)))


def is_list(sketch: bytes, scheme: Scheme) -> bool:
    oracle = Oracle(bins=scheme.sketch_bins)
    return bool(oracle.size(sketch) <= oracle.most_listed)


IN_JOURNALS = [
    Scheme(),
    Scheme(sketch_bins=64),
    Scheme(sketch_bins=192),
    Scheme(sketch_bins=8192),
    Scheme(sketch="minhash", sketch_bins=1024),
    Scheme(sketch="minhash", sketch_bins=192, sketch_bits=8),
]


def pairs_of_sets(rng: np.random.Generator, bins: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sets of sizes around every bound, that share nothing, much, or all."""
    bounds = [1, 2, 7 * bins // 40, 7 * bins // 40 + 1, 5 * bins // 2, 5 * bins // 2 + 1, 5 * bins + 1]
    sizes = [*bounds, bins // 30 + 1, bins // 13, bins // 8, bins // 3, bins, 4 * bins, 9 * bins, 11 * bins]
    found = []
    for _ in range(count):
        size = int(rng.choice(sizes))
        one, fresh = rng.integers(0, 2**32, (2, size), np.uint32)
        kept = int(size * rng.choice([0, 0.5, 0.8, 0.89, 0.95, 1]))
        added = int(rng.choice([0, 1, size - kept, size // 8]))
        found.append((one, np.append(one[:kept], fresh[:added])))
        found.append((one, rng.integers(0, 2**32, int(rng.choice(sizes)), np.uint32)))
    return found


@pytest.mark.parametrize("scheme", IN_JOURNALS)
def test_a_similarity_is_computed_as_documented(scheme: Scheme) -> None:
    rng = np.random.default_rng(scheme.sketch_bins)
    rule, only = Rule(VerdictOptions(), scheme), np.zeros(1, np.int64)
    kinds: Counter[str] = Counter()
    for one, two in pairs_of_sets(rng, scheme.sketch_bins, 40 if scheme.sketch_bins > 2000 else 150):
        rows = sketch(one, scheme), sketch(two, scheme)
        a, b = (np.frombuffer(row, "<u8")[None] for row in rows)
        due = documented(*rows, scheme)
        assert due == int(similarities(SketchPairs.of(a, b), scheme)[0]), (one.size, two.size)
        assert due == documented(*rows[::-1], scheme)
        lists = scheme.sketch == "parity" and all(is_list(row, scheme) for row in rows)
        assert int(rule.least(SketchPairs(a, only, b, only))[0]) == (8000 if lists else 7980)
        kinds["lists" if lists else "others"] += 1
        kinds["near the limit"] += 7000 < due < 9000
    assert min(kinds.values()) > 8, kinds
    assert len(kinds) == (2 if scheme.sketch == "minhash" else 3)


@pytest.mark.parametrize("scheme", IN_JOURNALS[:4])
def test_so_is_that_of_bins_of_any_kind(scheme: Scheme) -> None:
    rng = np.random.default_rng(1)
    words = scheme.sketch_bins // 64
    sizes = [7 * scheme.sketch_bins // 40 + 1, 5 * scheme.sketch_bins // 2, 6 * scheme.sketch_bins, 10**6]
    for _ in range(60):
        rows = rng.integers(0, 2**64, (2, words + 2), np.uint64)
        rows[1, :words] = rows[0, :words] ^ rng.integers(0, 2**64, words, np.uint64) & (
            rng.integers(0, 2**64, words, np.uint64) & rng.integers(0, 2**64, words, np.uint64)
        ) * np.uint64(rng.integers(0, 2))
        rows[:, words] = rng.choice(sizes, 2)
        found = int(similarities(SketchPairs.of(rows[:1], rows[1:]), scheme)[0])
        assert found == documented(*(row.tobytes() for row in rows), scheme)
