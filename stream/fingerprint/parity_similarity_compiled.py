"""Pairs of sketches -> estimated Jaccard similarity, compiled: a judge estimates a few for every page."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing, compiled, inlined, popcount
from stream.fingerprint.parity import ONE, SCALE, estimated_differences, limits
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.small_sets import BIN_BITS, BINS_A_BUCKET, low_bits

_SCALE: Final = np.int64(SCALE)
_LOWER: Final = np.uint64(0x5555555555555555)
"""Mask of the even bins, which hold the lower half of the sampled range."""
_ONE: Final = np.uint64(1)
_BIT: Final = np.uint64(63)
_WORD_BITS: Final = np.uint64(6)


class Estimator(NamedTuple):
    """How similarities are estimated from a scheme's sketches."""

    bits: int
    """Bits of a bin of minima (`stream.fingerprint.bbit`); 0 for odd sketches."""
    words: int
    """Words of the bins, which are the first of a sketch; in an odd sketch, the size of the set follows."""
    of_all: NDArray[np.int64]
    """Elements that differ, in 1024ths, by how many bins of an odd sketch do (bins + 1,)."""
    of_even: NDArray[np.int64]
    """Elements that differ, in 1024ths, by how many of the even bins do, for two sets that were sampled at
    different rates (bins / 2 + 1,)."""
    largest: NDArray[np.int64]
    """The largest sets that are sampled whole, by half, by a quarter ... (32,)."""
    code_bits: NDArray[np.int64]
    """Low bits of the codes of a set that is listed whole, by its size (`stream.fingerprint.small_sets`)."""


def estimator(scheme: Scheme) -> Estimator:
    """Return the estimator for the sketches of a scheme."""
    bits, bins = scheme.sketch_bits if scheme.sketch == "minhash" else 0, scheme.sketch_bins
    return Estimator(
        bits,
        bins * max(1, bits) // 64,
        estimated_differences(bins),
        estimated_differences(bins // 2),
        limits(bins),
        low_bits(bins),
    )


@compiled
def similarities_of(
    a: NDArray[np.uint64],
    rows_a: NDArray[np.int64],
    b: NDArray[np.uint64],
    rows_b: NDArray[np.int64],
    by: Estimator,
) -> NDArray[np.int64]:
    """Return the estimated Jaccard similarity, in ten-thousandths, of the sets sketched in the m pairs
    `a[rows_a]` and `b[rows_b]`: (m,). Sketches are uint64 arrays (n, sketch_bytes / 8) that include size and
    minima."""
    similarities = np.empty(len(rows_a), np.int64)
    for i in range(len(rows_a)):
        similarities[i] = similarity_of(a, rows_a[i], b, rows_b[i], by)
    return similarities


@inlined
def similarity_of(
    a: NDArray[np.uint64],
    row_a: int | np.signedinteger[Any],
    b: NDArray[np.uint64],
    row_b: int | np.signedinteger[Any],
    by: Estimator,
) -> np.int64:
    """Return the estimated Jaccard similarity, in ten-thousandths, of one pair of sketches."""
    if by.bits:
        return np.int64(_of_minima(a[row_a], b[row_b], by))
    listed, last, sampled = np.uint64(len(by.code_bits)), by.words, np.uint64(by.largest[0])
    size_a, size_b = a[row_a, last], b[row_b, last]
    if size_a < listed or size_b < listed or size_a > sampled or size_b > sampled:
        return np.int64(_of_odd(a[row_a], b[row_b], by))
    unequal = np.int64(0)  # most pairs
    for word in range(last):
        unequal += popcount(a[row_a, word] ^ b[row_b, word])
    return np.int64(_similarity_by(by.of_all[unequal], np.int64(size_a), np.int64(size_b)))


@compiled
def _of_odd(one: NDArray[np.uint64], two: NDArray[np.uint64], by: Estimator) -> int:
    """Return the similarity of any two odd sketches, in ten-thousandths."""
    last = by.words
    size_one, size_two, sampled = np.int64(one[last]), np.int64(two[last]), by.largest
    if not size_one + size_two:
        return ONE
    listed = np.uint64(len(by.code_bits))
    if one[last] < listed and two[last] < listed:
        return _of_lists(one, two, by)
    if one[last] < listed:
        one = _bins_of_list(one, by)
    elif two[last] < listed:
        two = _bins_of_list(two, by)
    halved_one = halved_two = np.int64(0)  # as of most pages
    if size_one > sampled[0]:
        halved_one = np.int64(np.searchsorted(sampled, size_one))
    if size_two > sampled[0]:
        halved_two = np.int64(np.searchsorted(sampled, size_two))
    unequal = np.int64(0)
    if halved_one == halved_two:
        for word in range(last):
            unequal += popcount(one[word] ^ two[word])
        apart = by.of_all[unequal] << halved_one
    elif np.abs(halved_one - halved_two) == 1:
        coarser = one if halved_one > halved_two else two
        for word in range(last):
            unequal += popcount((one[word] ^ two[word] ^ coarser[word] >> _ONE) & _LOWER)
        apart = by.of_even[unequal] << np.maximum(halved_one, halved_two)
    else:  # less than half as large
        return 0
    return _similarity_by(apart, size_one, size_two)


@inlined
def _similarity_by(apart: np.int64, size_one: np.int64, size_two: np.int64) -> int:
    """Return the similarity, in ten-thousandths, of two sets of these sizes by how many elements differ, in
    1024ths. Sizes are known exactly, and sets differ by at least as much as these do."""
    both = (size_one + size_two) * _SCALE
    apart = np.maximum(apart, np.abs(size_one - size_two) * _SCALE)
    return int(ONE * np.maximum(both - apart, 0) // (both + apart))


@borrowing
def both_listed(
    a: NDArray[np.uint64],
    row_a: int | np.signedinteger[Any],
    b: NDArray[np.uint64],
    row_b: int | np.signedinteger[Any],
    by: Estimator,
) -> bool:
    """Return whether both sets of a pair are small and so listed whole, and are compared by their lists."""
    size, listed = by.words, np.uint64(len(by.code_bits))
    return not by.bits and a[row_a, size] < listed and b[row_b, size] < listed


@compiled
def both_listed_of(
    a: NDArray[np.uint64],
    rows_a: NDArray[np.int64],
    b: NDArray[np.uint64],
    rows_b: NDArray[np.int64],
    by: Estimator,
) -> NDArray[np.bool_]:
    """Return for each of the m pairs `a[rows_a]` and `b[rows_b]` whether both sets are listed whole: (m,)."""
    listed = np.zeros(len(rows_a), np.bool_)
    for i in range(len(rows_a)):
        listed[i] = both_listed(a, rows_a[i], b, rows_b[i], by)
    return listed


@compiled
def _of_lists(one: NDArray[np.uint64], two: NDArray[np.uint64], by: Estimator) -> int:
    """Return the Jaccard similarity, in ten-thousandths, of two small sets, by their lists."""
    bins, last = 64 * by.words, by.words
    size_one, size_two = np.int64(one[last]), np.int64(two[last])
    equal = True
    for word in range(last + 1):
        equal = equal and one[word] == two[word]
    if equal:
        return ONE
    low = min(by.code_bits[size_one], by.code_bits[size_two])
    codes_one, codes_two = _codes(one, by, low), _codes(two, by, low)
    i = j = common = 0
    while i < len(codes_one) and j < len(codes_two):  # without branches, which cannot be predicted here
        code_one, code_two = codes_one[i], codes_two[j]
        common += code_one == code_two
        i += code_one <= code_two
        j += code_two <= code_one
    only_one, only_two = size_one - common, size_two - common
    # Some of those that differ have equal codes by chance, and took each other for common. Near J = 0.8, none
    # is the likeliest number with the default number of bins, and this is 0.
    by_chance = 2 * only_one * only_two // (bins // BINS_A_BUCKET << low)
    apart = only_one + only_two + by_chance
    both = size_one + size_two
    return int(ONE * max(both - apart, 0) // (both + apart))


@compiled
def _codes(row: NDArray[np.uint64], by: Estimator, bits: int) -> NDArray[np.uint64]:
    """Return the codes of a small set, ascending, with `bits` of their low bits. They are fewer than the set
    if the row is no such list."""
    last = by.words
    size, bins = np.int64(row[last]), 64 * last
    codes, width = np.empty(size, np.uint64), np.uint64(by.code_bits[size])
    mask, dropped = (_ONE << width) - _ONE, width - np.uint64(bits)
    start, count = np.uint64(bins // BINS_A_BUCKET + size), 0
    for word in range(last):
        ones = row[word]
        while ones and count < size:
            bucket = np.uint64(64 * word - count + popcount(~ones & (ones - _ONE)))
            ones &= ones - _ONE
            at = start + np.uint64(count) * width
            place, shift = np.int64(at >> _WORD_BITS), at & _BIT
            # The next word, shifted twice so that a shift is never by 64, as that is undefined.
            low = row[place] >> shift | row[place + 1] << _ONE << (_BIT - shift)
            codes[count] = (bucket << width | low & mask) >> dropped
            count += 1
        if count == size:
            break
    return codes[:count]


@compiled
def _bins_of_list(row: NDArray[np.uint64], by: Estimator) -> NDArray[np.uint64]:
    """Return the odd sketch of a small set, in a row of the same length."""
    sketch, last = np.zeros(len(row), np.uint64), np.uint64(by.words - 1)
    for place in _codes(row, by, BIN_BITS):
        sketch[min(place >> _WORD_BITS, last)] ^= _ONE << (place & _BIT)
    return sketch


@borrowing
def _of_minima(one: NDArray[np.uint64], two: NDArray[np.uint64], by: Estimator) -> int:
    """Return the estimated Jaccard similarity, in ten-thousandths, of two sketches of b-bit minima.

    The planes, of a bit of each bin, follow each other. A bin matches by chance with probability 2**-b, so
    E[matches / bins] = J + (1 - J) / 2**b.
    """
    bits, words = by.bits, by.words // by.bits
    mismatches = np.int64(0)
    for word in range(words):
        different = np.uint64(0)
        for plane in range(bits):
            different |= one[plane * words + word] ^ two[plane * words + word]
        mismatches += popcount(different)
    beyond_chance = ((64 * words - mismatches) << bits) - 64 * words
    return int(np.maximum(0, ONE * beyond_chance // (64 * words * ((1 << bits) - 1))))
