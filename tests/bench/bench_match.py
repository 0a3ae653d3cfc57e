"""All pairs of a batch, and a batch against a corpus. `tests/property` holds both against brute force.

Random fingerprints of 64 bits; half of the batch has a planted neighbour at distance 0 to 5, 1 % of the
corpus are duplicates. All pairs are those of random fingerprints, of which a thousandth has a planted
neighbour.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import numpy as np

from stream.offline.all_pairs import all_pairs
from stream.offline.batch_tables import CHUNK, BatchTables, match
from stream.offline.pairs import Pairs
from tests.fingerprint_sets import flip_bits, random_set

WIDTH, DISTANCE = 64, 3
ROUNDS = 5


def matched(batch: Any, corpus: Any, threads: int) -> tuple[Pairs, float, float, str]:
    """Pairs, and seconds to build the tables and to scan."""
    start = time.perf_counter()
    tables = BatchTables(batch, WIDTH, DISTANCE)
    built = time.perf_counter()
    chunks = ((corpus[first : first + CHUNK], first) for first in range(0, len(corpus), CHUNK))
    parts = [
        Pairs(pairs.row, pairs.stored + first, pairs.distance)
        for pairs, _, first in match(tables, chunks, threads)
    ]
    pairs = Pairs.merge(parts)
    return pairs, built - start, time.perf_counter() - built, tables.layout.name


def within(rng: np.random.Generator, count: int, threads: int) -> dict[str, Any]:
    """Seconds until all pairs of so many fingerprints are found; the median of three."""
    held = random_set(rng, count, WIDTH)
    planted = count // 1000
    held[:planted] = flip_bits(rng, held[planted : 2 * planted], WIDTH, np.arange(planted) % (DISTANCE + 1))
    took = []
    for _ in range(3):
        start = time.perf_counter()
        pairs, compared = all_pairs(held, WIDTH, DISTANCE, threads=threads)
        took.append(time.perf_counter() - start)
    if len(pairs) < planted:
        raise AssertionError(f"{planted} pairs were planted, {len(pairs)} found")
    return {"seconds": round(sorted(took)[1], 3), "pairs": len(pairs), "compared": compared}


def run(
    batch: int = 100_000, corpus: int = 1_000_000, millions: tuple[float, ...] = (1, 10)
) -> dict[str, Any]:
    """Seconds to match, and to find all pairs of so many million fingerprints."""
    rng = np.random.default_rng(6)
    held, asked = random_set(rng, corpus, WIDTH), random_set(rng, batch, WIDTH)
    held[rng.integers(0, corpus, corpus // 100)] = held[rng.integers(0, corpus, corpus // 100)]
    half = batch // 2
    asked[:half] = flip_bits(rng, held[rng.integers(0, corpus, half)], WIDTH, np.arange(half) % 6)
    threads = os.cpu_count() or 1
    rounds = [(matched(asked, held, threads), matched(asked, held, 1)) for _ in range(ROUNDS)]
    found, _, _, layout = rounds[0][0]
    built = statistics.median(many[1] for many, _ in rounds)
    scanned = statistics.median(many[2] for many, _ in rounds)
    one = statistics.median(single[2] for _, single in rounds)
    return {
        "batch": batch,
        "corpus": corpus,
        "layout": layout,
        "pairs": len(found),
        "threads": threads,
        "tables seconds": round(built, 3),
        "scan seconds": round(scanned, 3),
        "scan seconds, one thread": round(one, 3),
        "threads_ratio": round(statistics.median(b[2] / a[2] for a, b in rounds), 2),
        "all_pairs": {f"{each} M": within(rng, round(each * 1_000_000), threads) for each in millions},
    }
