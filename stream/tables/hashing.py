"""The hash of a bucket key, for the compiled loops of the tables."""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.compiled import compiled

_FIRST: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND: Final = np.uint64(0x94D0_49BB_1331_11EB)


@compiled
def mixed(value: np.uint64) -> np.uint64:
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value ^ value >> np.uint64(30)) * _FIRST
    value = (value ^ value >> np.uint64(27)) * _SECOND
    return value ^ value >> np.uint64(31)
