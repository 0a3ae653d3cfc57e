"""Compression of sorted fingerprints (Manku, Jain, Das Sarma, WWW 2007, section 3.2).

A block begins with one uncompressed fingerprint. Each further one is the Huffman code of h, the position of
the first bit (from the top) in which it differs from its predecessor, followed by the bits after h. Bit h
itself is 1, since fingerprints ascend. A repeated fingerprint is h = width and nothing else. The last
fingerprint of each block is also stored uncompressed as the block's key, by which blocks are searched.

n random fingerprints of f bits take about f - log2(n) + 3 bits each. The paper's "almost half" holds for
2**33 fingerprints of 64 bits; fewer compress less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import words_of
from stream.fingerprint.row import WORD
from stream.offline.huffman import LONGEST, code_lengths, codes, decoding_table
from stream.tables.arrays import I64, U8, U64

BLOCK_BYTES: Final = 1024
"""Block size of the paper."""
LEAST_BLOCK: Final = 64
MOST_BLOCK: Final = 1 << 16
"""Smallest and largest block in bytes. Sizes are multiples of 8."""
TOGETHER: Final = 4096
"""Blocks decoded in parallel: one step for all of them takes a few NumPy calls on arrays that stay cached."""
_ONE: Final = np.uint64(1)
_LAST: Final = np.uint64(WORD - 1)


class CorruptBlockError(ValueError):
    """A block that is not the output of the encoder."""


@dataclass(frozen=True, slots=True, eq=False)
class Compressed:
    """A sorted set of fingerprints, compressed in blocks."""

    width: int
    lengths: U8
    """Length in bits of the Huffman code of each h, shape (width + 1,)."""
    counts: NDArray[np.uint16]
    """Fingerprints in each block, shape (b,)."""
    keys: U64
    """The last fingerprint of each block, shape (b, lanes)."""
    blocks: U8
    """Shape (b, block bytes): big-endian bit strings, padded with zeros."""

    @property
    def count(self) -> int:
        """Number of fingerprints."""
        return int(self.counts.sum(dtype=np.int64))

    @property
    def bytes(self) -> int:
        """Size in bytes of all that a search needs: blocks, keys, counts, code."""
        return sum(part.nbytes for part in (self.lengths, self.counts, self.keys, self.blocks))

    @property
    def starts(self) -> I64:
        """Index of each block's first fingerprint in the sorted set, shape (b,)."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        return ends - self.counts

    def decode(self, chosen: I64 | None = None) -> U64:
        """The fingerprints (n, lanes) of the chosen blocks, by default of all, ascending within each block.

        Raises CorruptBlockError.
        """
        numbers = np.arange(len(self.counts)) if chosen is None else chosen
        table = decoding_table(self.lengths)
        parts = [np.zeros((0, words_of(self.width)), np.uint64)]
        for start in range(0, len(numbers), TOGETHER):
            some = numbers[start : start + TOGETHER]
            parts.append(_decode(self.blocks[some], self.counts[some].astype(np.int64), self.width, *table))
        return np.concatenate(parts)


def encode(words: U64, width: int, block_bytes: int = BLOCK_BYTES) -> Compressed:
    """Compress fingerprints (n, lanes), which must be in ascending order."""
    n, per = words.shape
    if not n:
        none = np.zeros((0, per), np.uint64)
        empty = np.zeros((0, block_bytes), np.uint8)
        return Compressed(width, np.zeros(width + 1, np.uint8), np.zeros(0, np.uint16), none, empty)
    first_different = _first_different(words, width)
    counts = np.bincount(first_different, minlength=width + 1)
    lengths = code_lengths(counts)
    rest = np.maximum(width - 1 - first_different, 0)
    bits = np.zeros(n, np.int64)
    bits[1:] = lengths[first_different].astype(np.int64) + rest
    total = np.cumsum(bits)
    starts = _cut(total, block_bytes * 8 - width)
    sizes = np.diff(starts, append=n)
    held = np.zeros((len(starts), block_bytes // 8), np.uint64)
    base = np.arange(len(starts)) * (block_bytes * 8)
    for word in range(per):
        part = min(width - word * WORD, WORD)
        _put(held.reshape(-1), base + word * WORD, words[starts, word], np.full(len(starts), part))
    inner = np.ones(n, bool)
    inner[starts] = False
    at = np.flatnonzero(inner)
    if len(at):
        before = at - 1  # first_different has no entry for the first fingerprint
        place = np.repeat(base + width - total[starts], sizes)[at] + total[at] - bits[at]
        symbol, left = first_different[before], rest[before]
        length = lengths[symbol].astype(np.int64)
        _put(held.reshape(-1), place, codes(lengths)[symbol], length)
        place = place + length
        for word in range(per):
            part = np.clip(left - (per - 1 - word) * WORD, 0, WORD)
            _put(held.reshape(-1), place, words[at, word], part)
            place = place + part
    keys = words[np.append(starts[1:], n) - 1]
    blocks = held.astype(">u8").view(np.uint8).reshape(len(starts), block_bytes)
    return Compressed(width, lengths, sizes.astype(np.uint16), keys, blocks)


def sort_words(words: U64) -> U64:
    """Sort fingerprints (n, lanes) in ascending order."""
    if words.shape[1] == 1:
        return np.sort(words, axis=0)
    return words[np.lexsort(words.T[::-1])]


def expected_bytes(n: float, width: int, block_bytes: int = BLOCK_BYTES) -> float:
    """Expected compressed size in bytes of n distinct random fingerprints, computed rather than measured.

    Neighbours that first differ in bit h correspond to a node at depth h of the binary trie with two
    children; 2**h (1 - 2 (1 - 2**-(h+1))**n + (1 - 2**-h)**n) of these are expected. The length of the
    Huffman code is approximated by their entropy, from which it differs by a few hundredths of a bit.
    """
    if n <= 1:
        return n * width / 8
    depth = np.arange(min(width, 1000), dtype=np.float64)
    half, whole = np.log1p(-(2.0 ** -(depth + 1))), np.full(len(depth), -np.inf)
    whole[1:] = np.log1p(-(2.0 ** -depth[1:]))
    # With p = 2**-(h+1) and small n p, the difference is n**2 p**2. expm1 avoids cancellation against 1.
    nodes = 2.0**depth * (np.expm1(n * whole) - 2 * np.expm1(n * half))
    nodes = np.maximum(nodes, 0)
    share = nodes / nodes.sum()
    entropy = -float((share[share > 0] * np.log2(share[share > 0])).sum())
    item = entropy + float((share * (width - 1 - depth)).sum())
    per_block = 1 + (block_bytes * 8 - width) / item
    return n / per_block * (block_bytes + 2 + width / 8)


def _bit_length(values: U64) -> I64:
    high, low = (values >> np.uint64(32)).astype(np.float64), (values & np.uint64(0xFFFFFFFF)).astype(float)
    return np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1]).astype(np.int64)


def _first_different(words: U64, width: int) -> I64:
    """Position, from the top, of the first differing bit of each pair of neighbours, or width if they are
    equal (n - 1,)."""
    apart = words[1:] ^ words[:-1]
    positions = np.full(len(apart), width, np.int64)
    for word in range(words.shape[1] - 1, -1, -1):
        below = (words.shape[1] - 1 - word) * WORD
        length = _bit_length(apart[:, word])
        positions = np.where(length > 0, width - below - length, positions)
    return positions


def _cut(total: I64, budget: int) -> I64:
    """Starts of blocks, such that the items of each block after the first take at most `budget` bits."""
    starts, start, n = [], 0, len(total)
    most = (1 << 16) - 1  # counts are 16 bits
    while start < n:
        starts.append(start)
        start = min(int(total.searchsorted(total[start] + budget, side="right")), start + most)
    return np.array(starts, np.int64)


def _put(buffer: U64, place: I64, values: U64, bits: I64) -> None:
    """OR the low `bits` (0 to 64) of each value into the bit string `buffer` at the bit `place`."""
    some = np.flatnonzero(bits)
    place, values, bits = place[some], values[some], bits[some].astype(np.uint64)
    spare = np.uint64(WORD) - bits  # 0 to 63
    left = values << spare  # the bits to write, left-aligned
    word, offset = place >> 6, (place & 63).astype(np.uint64)
    np.bitwise_or.at(buffer, word, left >> offset)
    over = np.flatnonzero(offset + bits > np.uint64(WORD))
    np.bitwise_or.at(buffer, word[over] + 1, left[over] << (np.uint64(WORD) - offset[over]))


def _decode(blocks: U8, counts: I64, width: int, symbols: U8, taken: U8) -> U64:
    """Decode blocks in parallel: each step decodes the next fingerprint of every block."""
    per = words_of(width)
    ends = np.cumsum(counts)
    out = np.empty((int(ends[-1]) if len(ends) else 0, per), np.uint64)
    order = np.argsort(-counts, kind="stable")  # longest first, so that finished blocks are at the end
    place, left = (ends - counts)[order], -np.sort(-counts)
    held = np.zeros((len(blocks), blocks.shape[1] // 8 + 3), np.uint64)
    held[:, :-3] = np.ascontiguousarray(blocks).view(">u8")[order]
    flat, row = held.reshape(-1), np.arange(len(blocks)) * held.shape[1]
    limit = blocks.shape[1] * 8
    at = np.zeros(len(blocks), np.int64)

    def window(active: int) -> U64:
        """The next 64 bits of each block."""
        word, offset = row[:active] + (at[:active] >> 6), (at[:active] & 63).astype(np.uint64)
        bits: U64 = flat.take(word) << offset | flat.take(word + 1) >> _ONE >> (_LAST - offset)
        return bits

    current = np.zeros((per, len(blocks)), np.uint64)
    for word in range(per):
        part = min(width - word * WORD, WORD)
        current[word] = window(len(blocks)) >> np.uint64(WORD - part)
        at += part
        out[place, word] = current[word]
    for step in range(1, int(left[0]) if len(left) else 0):
        active = int(np.count_nonzero(left > step))
        code = (window(active) >> np.uint64(WORD - LONGEST)).astype(np.int64)
        symbol, length = symbols.take(code).astype(np.int64), taken.take(code)
        if not length.all():
            raise CorruptBlockError("invalid Huffman code")
        at[:active] += length
        rest = np.maximum(width - 1 - symbol, 0)
        same = symbol == width
        for word in range(per):
            below = (per - 1 - word) * WORD
            bits = np.clip(rest - below, 0, WORD)
            value = current[word, :active]
            new = _tail(window(active), bits)
            shift = np.minimum(bits, WORD - 1).astype(np.uint64)
            stands = ((value >> shift) | _ONE) << shift | new
            inside = (rest >= below) & (rest < below + WORD) & ~same
            current[word, :active] = np.where(inside, stands, np.where(bits == WORD, new, value))
            at[:active] += bits
            out[place[:active] + step, word] = current[word, :active]
        if int(at[:active].max()) > limit:
            raise CorruptBlockError("a fingerprint extends beyond the end of its block")
    return out


def _tail(window: U64, bits: I64) -> U64:
    """The first `bits` (0 to 64) bits of a 64-bit window, as an integer."""
    shift = (WORD - bits).astype(np.uint64)
    return np.asarray(np.where(bits > 0, window >> np.minimum(shift, _LAST), 0), np.uint64)
