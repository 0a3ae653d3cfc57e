"""Keyed hashes of tokens and texts, which are the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

GOLDEN: Final = 0x9E3779B97F4A7C15
"""Increment of SplitMix64: the golden ratio's digits."""

SIP_STATE: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""The state from which SipHash begins, before the key."""
_ONE: Final = np.uint64(1)
_REACH: Final = 16_384
"""Code points hashed at a time, so that the working arrays stay in the cache."""
FIRST: Final = np.uint32(0x7FEB352D)
SECOND: Final = np.uint32(0x846CA68B)


Words: TypeAlias = Any
"""Words of 64 bits (n,), or in compiled code a single one."""


class HashKeys(NamedTuple):
    """The keys of the hash of tokens or units, derived from a seed (see `stream.fingerprint.seed`)."""

    factors: NDArray[np.uint64]
    """Factors of the first characters of a token (n,), n > 0."""
    state: np.uint64
    """State of the generator of all factors."""
    added: np.uint64
    """Added to the sum."""
    left: np.uint64
    right: np.uint64
    """The key of the final pseudo-random function, 128 bits."""


def hash_tokens(tokens: Sequence[bytes], keys: HashKeys) -> NDArray[np.uint64]:
    """Return the hash of each UTF-8 token, (n,) in the order of the tokens; see `hash_ranges`."""
    texts = [token.decode(errors="surrogateescape") for token in tokens]
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
    ends = np.cumsum([0, *map(len, texts)], dtype=np.intp)
    return hash_ranges(points.astype(np.uint32, copy=False), ends[:-1], ends[1:], keys)


def hash_ranges(
    points: NDArray[np.uint8] | NDArray[np.uint32],
    starts: NDArray[np.intp],
    ends: NDArray[np.intp],
    keys: HashKeys,
) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each range of code points (n,). The ranges are in order.

    The hash is `pseudo_random` of added + sum((point[i] + 1) * factor[i]) modulo 2**64, with i counted from
    the start of the range: multilinear hashing (Carter and Wegman, 1979; Lemire and Kaser, "Strongly
    universal string hashing is fast", 2014). With random factors, two words collide with a probability of
    at most 2**-42, since code points have 21 bits. A polynomial in a secret base would not do: modulo 2**64
    there are words that collide for every base. The last function hides the sums, since the fingerprint of a
    page of a single word is the hash of that word.
    """
    hashes = np.empty(starts.size, np.uint64)
    lengths = ends - starts
    whole = np.cumsum(lengths)
    done = 0
    while done < starts.size:
        # A block of tokens of no more than _REACH characters, or a single longer token.
        before = int(whole[done - 1]) if done else 0
        last = max(done + 1, int(np.searchsorted(whole, before + _REACH, "right")))
        sums = np.full(last - done, keys.added)
        size = lengths[done:last]
        if longest := int(size.max()):
            tabled = keys.factors.size
            factors = keys.factors if longest <= tabled else multilinear_factors(keys.state, longest)
            first = np.cumsum(size) - size
            places = np.arange(int(size.sum())) - np.repeat(first, size)
            at = places + np.repeat(starts[done:last], size)
            filled = size > 0  # reduceat cannot sum nothing
            sums[filled] += np.add.reduceat((points[at] + _ONE) * factors[places], first[filled])
        hashes[done:last] = sums
        done = last
    return pseudo_random(hashes, keys)


def multilinear_factors(state: np.uint64, count: int) -> NDArray[np.uint64]:
    """Return the factors of the first `count` characters of a token: SplitMix64 from `state`, made odd, so
    that words that differ in one character never collide."""
    factors: NDArray[np.uint64] = mix64(state + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    return factors | np.uint64(1)


def pseudo_random(values: NDArray[np.uint64], keys: HashKeys) -> NDArray[np.uint64]:
    """SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012) of single words (n,), which need no block for
    their length: nobody who does not know the key can tell it from random numbers."""
    keyed = zip((keys.left, keys.right) * 2, SIP_STATE, strict=True)
    states = [np.full(values.shape, key ^ np.uint64(word)) for key, word in keyed]
    hashes: NDArray[np.uint64] = sip_rounds(values, *states)
    return hashes


def sip_rounds(values: Words, a: Words, b: Words, c: Words, d: Words) -> Words:
    """Apply the rounds of SipHash-1-3 to a keyed state, which is overwritten. NumPy runs this function on
    arrays, and `stream.fingerprint.tokens_compiled` compiles it for one word."""
    d ^= values
    for number in range(4):
        if number == 1:
            a ^= values
            c ^= np.uint64(0xFF)
        a += b
        b = (b << np.uint64(13) | b >> np.uint64(51)) ^ a
        a = a << np.uint64(32) | a >> np.uint64(32)
        c += d
        d = (d << np.uint64(16) | d >> np.uint64(48)) ^ c
        a += d
        d = (d << np.uint64(21) | d >> np.uint64(43)) ^ a
        c += b
        b = (b << np.uint64(17) | b >> np.uint64(47)) ^ c
        c = c << np.uint64(32) | c >> np.uint64(32)
    return a ^ b ^ c ^ d


def mix64(values: Words) -> Words:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in place: a bijection that
    spreads every input bit over all output bits. It is compiled as well, like `sip_rounds`."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def text_hasher(key: bytes) -> Callable[[bytes | NDArray[np.uint8]], bytes]:
    """Return a function that hashes whole texts: 16 bytes, equal for equal normalised texts and for no others
    that anybody could find. SHA-256 of a key of 64 bytes, which is one block, and the text; most processors
    have instructions for it, so it takes half the time of BLAKE2b."""
    keyed = hashlib.sha256(key)

    def hash_text(encoded: bytes | NDArray[np.uint8]) -> bytes:
        hashing = keyed.copy()
        hashing.update(encoded if isinstance(encoded, bytes) else encoded.data)
        return hashing.digest()[:16]

    return hash_text


def mix(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply Wellons' `lowbias32` (Hash Prospector, 2018), in place: a bijection that spreads every input bit
    over all output bits."""
    shifted = values >> np.uint32(16)
    values ^= shifted
    values *= FIRST
    np.right_shift(values, np.uint32(15), out=shifted)
    values ^= shifted
    values *= SECOND
    np.right_shift(values, np.uint32(16), out=shifted)
    values ^= shifted
    return values
