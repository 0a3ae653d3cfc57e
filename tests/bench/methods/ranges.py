"""Ranges of positions, as arrays."""

from __future__ import annotations

import numpy as np

from stream.tables.arrays import I64


def expand(starts: I64, lengths: I64) -> tuple[I64, I64]:
    """The positions of all ranges [starts[i], starts[i] + lengths[i]), concatenated, and the i of each."""
    total = int(lengths.sum())
    source = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(total) + (starts - before).take(source), source
