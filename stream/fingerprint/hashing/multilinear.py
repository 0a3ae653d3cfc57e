"""The keyed hash of the default scheme (`stream.fingerprint.keyed_hashes.hash_ranges`), which hashes
all tokens of a text at once, without a Python object per token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.keyed_hashes import GOLDEN, HashKeys, hash_tokens, mix64


def multilinear(features: Sequence[bytes], width: int, keys: HashKeys) -> NDArray[np.uint64]:
    """Return the lower `width` bits of the 64-bit hash. For 128 bits, the hash mixed once more is the upper
    half."""
    hashes = hash_tokens(features, keys)
    if width > 64:
        return np.stack([mix64(hashes ^ np.uint64(GOLDEN)), hashes], axis=1)
    return hashes & np.uint64(2**width - 1)
