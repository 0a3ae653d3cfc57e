"""A journal for benchmarks: random fingerprints, 30 % of them near-duplicates of an earlier row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stream.fingerprint.minima import MINIMA_WORDS
from stream.fingerprint.scheme import Scheme
from stream.messages.journal import Rows, SourceRange, Strings
from stream.tables.reserves.keys import FIRST_PAIRS
from tests.url_digests import digests_of_urls

ROWS = 512
"""Rows a record."""
NEAR = 0.3
"""Share of near-duplicates."""
PARTITIONS = 8
"""Source partitions."""
REMEMBERED = 1 << 20
"""Near-duplicates are of rows at most about this far back."""

MINIMA = np.array([(block.word - MINIMA_WORDS, 1 << block.shift) for block in FIRST_PAIRS.places])
"""The lane of a sketch that has each minimum of the tables, from its end, and a bit of it there."""


def journal(rows: int, scheme: Scheme) -> Iterator[Rows]:
    """Records of ROWS rows each, from one source partition after the other."""
    rng = np.random.default_rng(20)
    words = scheme.sketch_bytes // 8
    remembered = min(rows, REMEMBERED)
    remembered += -remembered % ROWS
    prints = np.empty(remembered, np.uint64)
    sketches = np.empty((remembered, words), np.uint64)
    ends = [0] * PARTITIONS
    for number, first in enumerate(range(0, rows, ROWS)):
        n = min(ROWS, rows - first)
        at = first % remembered
        prints[at : at + n] = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        sketches[at : at + n] = rng.integers(0, 1 << 64, (n, words), dtype=np.uint64)
        sketches[at : at + n, scheme.sketch_bins // 64] = 1000  # shingles
        near = np.flatnonzero(rng.random(n) < NEAR) if first else np.zeros(0, np.int64)
        base = rng.integers(0, max(min(first, remembered), 1), len(near))
        # Flip up to three bits of the fingerprint, four bits of the sketch, and up to two of the minima.
        flips = np.uint64(1) << rng.integers(0, 64, (len(near), 3), dtype=np.uint64)
        flips[np.arange(3) >= rng.integers(0, 4, len(near))[:, None]] = 0
        prints[at + near] = prints[base] ^ np.bitwise_or.reduce(flips, axis=1)
        sketches[at + near] = sketches[base]
        sketches[at + near, 0] ^= np.uint64(0x1001001001)
        for _ in range(2):
            lane, bit = rng.choice(MINIMA, len(near)).T
            sketches[at + near, lane] ^= bit.astype(np.uint64)
        partition = number % PARTITIONS
        start, ends[partition] = ends[partition], ends[partition] + n
        urls = [f"https://host-{i % 997}.example/articles/2026/{i}.html" for i in range(first, first + n)]
        yield Rows(
            scheme=scheme.id,
            ranges=[SourceRange("c", "pages", "0" * 32, partition, start, start + n, n, opening=start == 0)],
            status=np.zeros(n, np.uint8),
            fingerprint=prints[at : at + n, None].copy(),
            sketch=sketches[at : at + n].copy(),
            text_hash=rng.integers(0, 256, (n, 16), dtype=np.uint8),
            url_digest=digests_of_urls(urls),
            offset=np.arange(start, start + n),
            fetched_at=np.full(n, 1_790_000_000_000),
            quality=np.full(n, np.nan),
            length=np.full(n, 6_000, np.uint32),
            language=np.zeros(n, "S3"),
            strings=Strings.of(urls, [url.encode() for url in urls]),
        )
