"""(feature, weight) pairs supplied by the caller instead of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.default_weights import UNIT
from stream.fingerprint.weight_options import cap_weights

LARGEST: Final = 2.0**32


def weighted_pairs(
    pairs: Iterable[tuple[str | bytes, float]], cap: int = 100
) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return the features in UTF-8, and rint(UNIT * weight) of each (n,), capped at `cap` percent of the sum
    of their magnitudes. Raises ValueError, which names the feature, for a weight that is not finite or larger
    than LARGEST."""
    names: list[bytes] = []
    weights: list[int] = []
    for feature, weight in pairs:
        if not math.isfinite(weight) or abs(weight) > LARGEST:
            raise ValueError(f"feature {feature!r}: weight {weight} is not within -2**32 to 2**32")
        names.append(feature.encode() if isinstance(feature, str) else feature)
        weights.append(round(UNIT * weight))
    whole = np.array(weights, np.int64)
    return names, whole if cap == 100 else np.sign(whole) * cap_weights(np.abs(whole), cap)


def fold_signs(
    hashes: NDArray[np.uint64], weights: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return equivalent hashes and weights without negative weights: negating a weight equals inverting all
    bits of the hash."""
    turned = np.where(weights < 0, np.uint64(2**64 - 1), np.uint64(0))
    return hashes ^ (turned if hashes.ndim == 1 else turned[:, None]), np.abs(weights)
