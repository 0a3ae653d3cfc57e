"""Five minima of a set of shingles, packed into a 64-bit key, by which tables find candidates (LSH banding).

The minima are the least hash in each fifth of the range of hashes (one permutation hashing: Li, Owen and
Zhang, NIPS 2012). An empty fifth takes the next hash after it, wrapping around at the end. Each minimum is
the same for two sets with a probability equal to their Jaccard similarity J. There is a table for each two of
the five minima, so two pages are candidates if two minima agree. One probe per table finds pairs with J = 0.8
in 993 of 1000 cases, and misses one in 2000 with J = 0.9.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.row import WORD
from stream.fingerprint.scheme import MINIMA

_BITS: Final = tuple(WORD // MINIMA + (minimum < WORD % MINIMA) for minimum in range(MINIMA))
"""Bits kept of each minimum, the first in the highest bits: the five blocks of a table design."""
EDGES: Final = (np.arange(MINIMA, dtype=np.uint64) * 2**32 // MINIMA).astype(np.uint32)
MASKS: Final = np.array([(1 << bits) - 1 for bits in _BITS], np.uint64)
PLACES: Final = np.array([1 << sum(_BITS[minimum + 1 :]) for minimum in range(MINIMA)], np.uint64)


def minima(ordered: NDArray[np.uint32]) -> int:
    """Return the key of a set of well mixed shingle hashes (n,), n > 0, ascending. It has the lowest bits of
    each minimum, which do not depend on its size."""
    least = ordered.take(ordered.searchsorted(EDGES), mode="wrap")
    return int((least & MASKS) @ PLACES)
