"""A mixed polynomial over the code points of a feature (`stream.fingerprint.hashes.hash_ranges`). The
default, since it hashes all tokens of a text at once, without a Python object per token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.hashes import BASE, hash_ranges, mix64


def polynomial(features: Sequence[bytes], width: int) -> NDArray[np.uint64]:
    """The lower `width` bits of the 64-bit hash. For 128 bits, the hash mixed once more is the upper half."""
    texts = [feature.decode(errors="surrogateescape") for feature in features]
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
    ends = np.cumsum([0, *map(len, texts)], dtype=np.intp)
    hashes = hash_ranges(points.astype(np.uint32, copy=False), ends[:-1], ends[1:])
    if width > 64:
        return np.stack([mix64(hashes ^ np.uint64(BASE)), hashes], axis=1)
    return hashes & np.uint64(2**width - 1)
