"""The default sketches of many texts in a compiled loop: `parity_sketch` and `minima` of each.

Those functions take 40 us for a text of 1,500 shingles, for a dozen calls of NumPy on small arrays; this
takes 10 us. They remain for a single page, whose command need not import the compiler (0.6 s), for schemes
with a recipe, for long texts, and `minima` for `sketch=minhash`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.fingerprint.keyed_hashes import FIRST, SECOND
from stream.fingerprint.minima import (
    A_WORD,
    FIRST_MINIMA,
    KEY_WORDS,
    LAST_BITS,
    LAST_PLACE,
    MINIMA,
    MINIMA_WORDS,
    MINIMUM_BITS,
    RESERVE_BITS,
    THIRTIETHS,
    TRIANGLE,
)
from stream.fingerprint.parity import limits
from stream.fingerprint.sketch import SHINGLE_BASE
from stream.fingerprint.small_sets import BIN_BITS, BINS_A_BUCKET, low_bits

_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_WORD: Final = np.uint64(0xFFFF_FFFF)
_HALF_WORD: Final = np.uint64(32)
_UPPER: Final = np.uint64(16)
_MIDDLE: Final = np.uint64(15)
_FIRST: Final = np.uint64(FIRST)
_SECOND: Final = np.uint64(SECOND)
_BASE: Final = np.uint64(SHINGLE_BASE)
_MINIMA: Final = np.uint64(MINIMA)
_EDGES: Final = np.arange(MINIMA, dtype=np.uint64) * 2**32 // MINIMA
_MINIMUM_BITS: Final = np.uint64(MINIMUM_BITS)
_MINIMUM: Final = np.uint64((1 << MINIMUM_BITS) - 1)
_RESERVE_BITS: Final = np.uint64(RESERVE_BITS)
_RESERVE: Final = np.uint64((1 << RESERVE_BITS) - 1)
_LAST_PLACE: Final = np.uint64(LAST_PLACE)
_LAST_BITS: Final = np.uint64(LAST_BITS)
_LAST: Final = np.uint64((1 << LAST_BITS) - 1)
_BIT: Final = np.uint64(63)
_BITS: Final = np.uint64(6)


def parity_sketches(
    units: NDArray[np.uint32], bounds: NDArray[np.intp], length: int, bins: int
) -> NDArray[np.uint64]:
    """Return the sketch of each text as uint64 (texts, sketch_bytes / 8), equal to `sketch` of its shingles.
    Text i has the units `units[bounds[i] : bounds[i + 1]]`; every `length` of them in a row are a shingle."""
    largest = int((bounds[1:] - bounds[:-1]).max())
    # At least half of the slots stay empty, which keeps probe sequences short.
    slots = 1 << (2 * largest).bit_length()
    return _sketches(np.ascontiguousarray(units), bounds, length, bins, limits(bins), low_bits(bins), slots)


@compiled
def _mix(value: np.uint64) -> np.uint64:
    """Return `hashes.mix` of a 32-bit value, computed in 64 bits."""
    value ^= value >> _UPPER
    value = value * _FIRST & _WORD
    value ^= value >> _MIDDLE
    value = value * _SECOND & _WORD
    return value ^ value >> _UPPER


@compiled
def _sketches(
    units: NDArray[np.uint32],
    bounds: NDArray[np.intp],
    length: int,
    bins: int,
    limits: NDArray[np.int64],
    low_bits: NDArray[np.int64],
    slots: int,
) -> NDArray[np.uint64]:
    words = bins // 64
    sketches = np.zeros((len(bounds) - 1, words + 1 + MINIMA_WORDS), np.uint64)
    half_bins = np.uint64(bins // 2)
    mask = np.uint64(slots - 1)
    table = np.zeros(slots, np.uint64)  # a hash set; text number in the upper half, shingle in the lower
    distinct = np.empty(slots // 2, np.uint64)
    least = np.empty(MINIMA, np.uint64)
    codes, ends = np.empty(len(low_bits), np.uint64), np.empty(bins // BINS_A_BUCKET, np.int64)
    for text in range(len(bounds) - 1):
        start, end = bounds[text], bounds[text + 1]
        if start == end:
            continue
        row = sketches[text]
        run = min(length, end - start)
        stamp = np.uint64(text + 1) << _HALF_WORD
        size = 0
        least[:] = _WORD + _ONE
        for first in range(start, end - run + 1):
            shingle = np.uint64(units[first])
            for place in range(first + 1, first + run):
                shingle = shingle * _BASE + np.uint64(units[place]) & _WORD
            shingle = _mix(shingle)
            slot = shingle & mask
            key = stamp | shingle
            while table[slot] != key and table[slot] >> _HALF_WORD == stamp >> _HALF_WORD:
                slot = slot + _ONE & mask
            if table[slot] == key:
                continue
            table[slot] = key
            distinct[size] = shingle
            size += 1
            at = np.int64(shingle * _MINIMA >> _HALF_WORD)
            # Edges are rounded down, so the shingle may belong to the next thirtieth.
            own = at + np.int64(at + 1 < MINIMA and shingle >= _EDGES[at + 1])
            least[own] = min(least[own], shingle)
        if size < len(low_bits):
            _list(distinct[:size], row, bins, low_bits[size], codes, ends)
        else:
            _put_into_bins(distinct[:size], row, half_bins, np.int64(np.searchsorted(limits, size)))
        row[words] = np.uint64(size)
        _put_minima(least, row[words + 1 :])
    return sketches


@compiled
def _put_minima(least: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
    """Write the minima, packed as by `minima`, into words that are 0. `least` is the least shingle in each
    thirtieth, more than _WORD in an empty one."""
    last = MINIMA - 1
    for at in range(2 * MINIMA - 2, -1, -1):  # an empty one takes the minimum of the next
        if least[at % MINIMA] > _WORD:
            least[at % MINIMA] = least[(at + 1) % MINIMA]
    for minimum in range(MINIMA):
        bits = least[THIRTIETHS[minimum]]
        if minimum < FIRST_MINIMA:
            place = np.uint64(minimum % TRIANGLE) * _MINIMUM_BITS
            words[minimum // TRIANGLE] |= (bits & _MINIMUM) << place
        elif minimum < last:
            at = minimum - FIRST_MINIMA
            words[KEY_WORDS + at // A_WORD] |= (bits & _RESERVE) << np.uint64(at % A_WORD) * _RESERVE_BITS
        else:
            for word in range(KEY_WORDS):
                words[word] |= ((bits & _RESERVE) >> np.uint64(word) * _LAST_BITS & _LAST) << _LAST_PLACE


@compiled
def _put_into_bins(
    distinct: NDArray[np.uint64], row: NDArray[np.uint64], half_bins: np.uint64, halved: np.int64
) -> None:
    """Write the odd sketch of a set, which is sampled by half `halved` times, into a row of zeros."""
    end_of_sample = _ONE << np.uint64(32 - halved)
    middle = _ONE << np.uint64(31 - halved)
    for shingle in distinct:
        if shingle < end_of_sample:
            place = (_mix(shingle) * half_bins >> _HALF_WORD) << _ONE
            if shingle >= middle:
                place += _ONE
            row[place >> _BITS] ^= _ONE << (place & _BIT)


@compiled
def _list(
    distinct: NDArray[np.uint64],
    row: NDArray[np.uint64],
    bins: int,
    low: np.int64,
    codes: NDArray[np.uint64],
    ends: NDArray[np.int64],
) -> None:
    """Write `small_sets.encode_list` of a set into a row of zeros. `codes`, one for each element, and `ends`,
    one for each bucket, are overwritten."""
    size, width, more = len(distinct), np.uint64(low), np.uint64(low - BIN_BITS)
    half_bins, least_bits = np.uint64(bins // 2), _HALF_WORD - more
    ends[:] = 0
    for i in range(size):
        scaled = _mix(distinct[i]) * half_bins
        place = (scaled >> _HALF_WORD) << _ONE | distinct[i] >> np.uint64(31)
        distinct[i] = place << more | (scaled & _WORD) >> least_bits
        ends[distinct[i] >> width] += 1
    before = 0
    for bucket in range(len(ends)):
        before, ends[bucket] = before + ends[bucket], before
    for i in range(size):  # in order of their buckets
        bucket = distinct[i] >> width
        codes[ends[bucket]] = distinct[i]
        ends[bucket] += 1
    low_mask = (_ONE << width) - _ONE
    start = np.uint64(len(ends) + size)
    for i in range(size):
        code, at = codes[i], i
        while at and codes[at - 1] > code:  # and in order within a bucket, by insertion
            codes[at] = codes[at - 1]
            at -= 1
        codes[at] = code
    for i in range(size):
        unary = (codes[i] >> width) + np.uint64(i)
        row[unary >> _BITS] |= _ONE << (unary & _BIT)
        at_bit = start + np.uint64(i) * width
        word, shift = np.int64(at_bit >> _BITS), at_bit & _BIT
        row[word] |= (codes[i] & low_mask) << shift
        if shift + width > _BIT + _ONE:
            row[word + 1] |= (codes[i] & low_mask) >> (_BIT + _ONE - shift)
