"""Margin-guided multi-probe: which buckets are looked into for one fingerprint.

The bits of a SimHash whose sums are closest to zero are those that a small edit flips first. Each table is
therefore also probed with the least certain bits inside its own prefix flipped. For three flips of five bits
that is 26 probes a table, which lifted the share of modified Chinese pages found from 0.781 to 0.993. Tables
of minima need none of it.
"""

from __future__ import annotations

import functools
from itertools import combinations
from math import comb
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream.tables.design import U64, Design

Word = TypeVar("Word", np.uint32, np.uint64)


def probe_count(flip_bits: int, flips: int) -> int:
    """P: probes a table, the exact one included."""
    return sum(comb(flip_bits, flipped) for flipped in range(flips + 1))


class ProbeTree(NamedTuple):
    """How the P probes of a table follow from each other: probe p flips what `parents[p]` flips, and the bit
    at place `added[p]` of the least certain ones. Probe 0 flips nothing."""

    parents: NDArray[np.int64]
    added: NDArray[np.int64]


@functools.cache
def probe_tree(flip_bits: int, flips: int) -> ProbeTree:
    """The probes that flip at most `flips` of `flip_bits` bits, in the order of `combine`."""
    choices = [c for flipped in range(flips + 1) for c in combinations(range(flip_bits), flipped)]
    place = {choice: probe for probe, choice in enumerate(choices)}
    parents = [place[choice[:-1]] for choice in choices]
    return ProbeTree(np.array(parents), np.array([choice[-1] if choice else 0 for choice in choices]))


def uncertain_bits(design: Design, uncertain: NDArray[np.uint8], flip_bits: int) -> NDArray[np.uint8]:
    """The first `flip_bits` listed bits inside each table's prefix, shape (flip_bits, n, T).

    `uncertain` lists bit indexes, least certain first, shape (n, u <= 64). Where fewer listed bits lie
    inside a prefix, the rest is `design.width`: no bit.
    """
    n, listed = uncertain.shape
    if not flip_bits:
        return np.zeros((0, n, design.tables), np.uint8)
    in_block = design.block_of_bit[uncertain] == np.arange(design.blocks, dtype=np.uint8)[:, None, None]
    packed = np.zeros((design.blocks, n, 8), np.uint8)
    packed[:, :, : (listed + 7) // 8] = np.packbits(in_block, axis=2, bitorder="little")
    places = packed.view(np.uint64)[:, :, 0].T  # (n, m): which places of the list lie in this block
    left = places[:, design.subsets[:, 0]]
    for position in range(1, design.choose):
        left |= places[:, design.subsets[:, position]]
    padded = np.concatenate(
        [uncertain, np.full((n, 65 - listed), design.width, np.uint8)], axis=1
    )  # place 64: the list is exhausted
    start = np.arange(n)[:, None] * 65
    bits = np.empty((flip_bits, n, design.tables), np.uint8)
    one = np.uint64(1)
    for flip in range(flip_bits):
        below = left - one  # wraps to 64 ones where nothing is left
        place = np.bitwise_count(below & ~left)
        bits[flip] = padded.ravel()[start + place]
        left &= below
    return bits


def combine(single: NDArray[Word], flips: int) -> NDArray[Word]:
    """XOR of every choice of at most `flips` of the masks along axis 0; the empty choice first."""
    flip_bits = len(single)
    masks = np.zeros((probe_count(flip_bits, flips), *single.shape[1:]), single.dtype)
    row = 1
    for flipped in range(1, flips + 1):
        for chosen in combinations(range(flip_bits), flipped):
            for flip in chosen:
                np.bitwise_xor(masks[row], single[flip], out=masks[row])
            row += 1
    return masks


def probe_keys(design: Design, keys: U64, uncertain: NDArray[np.uint8], flip_bits: int, flips: int) -> U64:
    """Keys of every bucket to look into, shape (n, T, P), for exact keys of shape (n, T).

    `[:, :, 0]` are the exact keys; then every way to flip one, two, up to `flips` of the `flip_bits` least
    certain bits inside that table's prefix. Where fewer lie inside, the missing ones flip nothing.
    """
    bits = uncertain_bits(design, uncertain, flip_bits)
    single = design.key_flip[bits, np.arange(design.tables)]
    return np.moveaxis(keys ^ combine(single, flips), 0, 2)
