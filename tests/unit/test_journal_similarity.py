"""Whoever reads the journal can compute similarities: this reader knows `schemas/journal.md` alone."""

from __future__ import annotations

from collections import Counter
from math import floor, log

import numpy as np
import pytest

from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs, similarities, sketch
from stream.judge.rule import Rule
from stream.messages.verdict_options import VerdictOptions


def bit(data: bytes, j: int) -> int:
    return data[j // 8] >> j % 8 & 1


class Reader:
    """Reads sketches as the document has it, bit by bit."""

    def __init__(self, scheme: Scheme) -> None:
        self.kind, self.bins, self.planes = scheme.sketch, scheme.sketch_bins, scheme.sketch_bits

    def similarity(self, one: bytes, two: bytes) -> int:
        if self.kind == "minhash":
            return self.of_minima(one, two)
        m, n = self.size(one), self.size(two)
        if m == n == 0:
            return 10_000
        if self.is_list(one) and self.is_list(two):
            return self.of_lists(one, two)
        return self.of_bins(one, two)

    def size(self, row: bytes) -> int:
        return int.from_bytes(row[self.bins // 8 : self.bins // 8 + 8], "little")

    def is_list(self, row: bytes) -> bool:
        return self.size(row) <= 7 * self.bins // 40

    def low_bits(self, n: int) -> int:
        return min(16, 7 * self.bins // 8 // n - 1) if n else 16

    def codes(self, row: bytes) -> list[int]:
        n, buckets = self.size(row), self.bins // 8
        k, at, found = self.low_bits(n), 0, []
        for bucket in range(buckets):
            while bit(row, at):
                start = buckets + n + len(found) * k
                low = sum(bit(row, start + i) << i for i in range(k))
                found.append(bucket * 2**k + low)
                at += 1
            at += 1
        assert len(found) == n
        assert at == buckets + n
        assert found == sorted(found)
        assert not any(bit(row, j) for j in range(at + n * k, self.bins)), "all further bits are 0"
        return found

    def of_lists(self, one: bytes, two: bytes) -> int:
        same = self.bins // 8 + 8
        if one[:same] == two[:same]:
            return 10_000
        m, n = self.size(one), self.size(two)
        k = min(self.low_bits(m), self.low_bits(n))
        cut = [
            Counter(code // 2 ** (self.low_bits(size) - k) for code in self.codes(row))
            for row, size in ((one, m), (two, n))
        ]
        c = sum(min(count, cut[1][code]) for code, count in cut[0].items())
        a, b = m - c, n - c
        d = a + b + 2 * a * b // (self.bins // 8 * 2**k)
        return 10_000 * max(0, m + n - d) // (m + n + d)

    def in_bins(self, row: bytes) -> list[int]:
        if not self.is_list(row):
            return [bit(row, j) for j in range(self.bins)]
        k = self.low_bits(self.size(row))
        counts = Counter(code // 2 ** (k - 3) for code in self.codes(row))
        return [counts[j] % 2 for j in range(self.bins)]

    def halved(self, n: int) -> int:
        h = 0
        while n > 5 * self.bins / 2 * 2**h:
            h += 1
        return h

    def of_bins(self, one: bytes, two: bytes) -> int:
        m, n = self.size(one), self.size(two)
        h, bins, total = [self.halved(m), self.halved(n)], [self.in_bins(one), self.in_bins(two)], self.bins
        if abs(h[0] - h[1]) > 1:
            return 0
        if h[0] != h[1]:
            larger, total = h.index(max(h)), self.bins // 2
            joined = [bins[larger][j] ^ bins[larger][j + 1] for j in range(0, self.bins, 2)]
            bins = [joined, bins[1 - larger][::2]]
        u = sum(x != y for x, y in zip(*bins, strict=True))
        x = 32_768 * total if 2 * u >= total else floor(1024 * log(1 - 2 * u / total) / log(1 - 2 / total))
        d = max(x * 2 ** max(h), 1024 * abs(m - n))
        return 10_000 * max(0, 1024 * (m + n) - d) // (1024 * (m + n) + d)

    def of_minima(self, one: bytes, two: bytes) -> int:
        plane = self.bins // 8
        u = sum(
            any(
                bit(one[p * plane : p * plane + plane], j) != bit(two[p * plane : p * plane + plane], j)
                for p in range(self.planes)
            )
            for j in range(self.bins)
        )
        q = 2**self.planes
        return max(0, 10_000 * ((self.bins - u) * q - self.bins) // (self.bins * (q - 1)))


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
    rng, reader = np.random.default_rng(scheme.sketch_bins), Reader(scheme)
    rule, only = Rule(VerdictOptions(), scheme), np.zeros(1, np.int64)
    kinds: Counter[str] = Counter()
    for one, two in pairs(rng, scheme.sketch_bins, 40 if scheme.sketch_bins > 2000 else 150):
        rows = sketch(one, scheme), sketch(two, scheme)
        a, b = (np.frombuffer(row, "<u8")[None] for row in rows)
        documented = reader.similarity(*rows)
        assert documented == int(similarities(SketchPairs.of(a, b), scheme)[0]), (one.size, two.size)
        assert documented == reader.similarity(*rows[::-1])
        lists = scheme.sketch == "parity" and all(map(reader.is_list, rows))
        assert int(rule.least(SketchPairs(a, only, b, only))[0]) == (8000 if lists else 7980)
        kinds["lists" if lists else "others"] += 1
        kinds["near the limit"] += 7000 < documented < 9000
    assert min(kinds.values()) > 8, kinds
    assert len(kinds) == (2 if scheme.sketch == "minhash" else 3)


@pytest.mark.parametrize("scheme", SCHEMES[:4])
def test_so_is_that_of_bins_of_any_kind(scheme: Scheme) -> None:
    rng, reader = np.random.default_rng(1), Reader(scheme)
    words = scheme.sketch_bins // 64
    sizes = [7 * scheme.sketch_bins // 40 + 1, 5 * scheme.sketch_bins // 2, 6 * scheme.sketch_bins, 10**6]
    for _ in range(60):
        rows = rng.integers(0, 2**64, (2, words + 2), np.uint64)
        rows[1, :words] = rows[0, :words] ^ rng.integers(0, 2**64, words, np.uint64) & (
            rng.integers(0, 2**64, words, np.uint64) & rng.integers(0, 2**64, words, np.uint64)
        ) * np.uint64(rng.integers(0, 2))
        rows[:, words] = rng.choice(sizes, 2)
        found = int(similarities(SketchPairs.of(rows[:1], rows[1:]), scheme)[0])
        assert found == reader.similarity(*(row.tobytes() for row in rows))
