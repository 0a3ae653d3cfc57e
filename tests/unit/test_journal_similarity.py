"""Whoever reads the journal can compute similarities, as the oracle does from `schemas/journal.md` alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs, similarities, sketch
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions
from tests.oracle import Oracle, OraclePage


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


SCHEMES = [
    Scheme(),
    Scheme(sketch_bins=64),
    Scheme(sketch_bins=192),
    Scheme(sketch_bins=8192),
    Scheme(sketch="minhash", sketch_bins=1024),
    Scheme(sketch="minhash", sketch_bins=192, sketch_bits=8),
]


def pairs(rng: np.random.Generator, bins: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_similarity_is_computed_as_documented(scheme: Scheme) -> None:
    rng = np.random.default_rng(scheme.sketch_bins)
    rule, only = Rule(VerdictOptions(), scheme), np.zeros(1, np.int64)
    kinds: Counter[str] = Counter()
    for one, two in pairs(rng, scheme.sketch_bins, 40 if scheme.sketch_bins > 2000 else 150):
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


@pytest.mark.parametrize("scheme", SCHEMES[:4])
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
