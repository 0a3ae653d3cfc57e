"""Lists all buckets that a row probes, which the tables themselves never enumerate."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stream.tables.arrays import U64
from stream.tables.design import Design
from stream.tables.search.prefixes_compiled import uncertain_bits
from stream.tables.search.probes import probe_count


def probe_keys(design: Design, keys: U64, uncertain: NDArray[np.uint8], flip_bits: int, flips: int) -> U64:
    """Keys of every bucket to look into, shape (n, T, P), for exact keys of shape (n, T).

    `[:, :, 0]` are the exact keys; then every way to flip one, two, up to `flips` of the `flip_bits` least
    certain bits inside that table's prefix. Where fewer lie inside, the missing ones flip nothing.
    """
    bits = uncertain_bits(design.block_of_bit, design.subsets, uncertain, flip_bits)
    single = design.key_flip[bits, np.arange(design.tables)]
    probes = np.repeat(keys[:, :, None], probe_count(flip_bits, flips), axis=2)
    choices = [c for flipped in range(flips + 1) for c in combinations(range(flip_bits), flipped)]
    for probe, choice in enumerate(choices):
        for flip in choice:
            probes[:, :, probe] ^= single[flip]
    return probes
