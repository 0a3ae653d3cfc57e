"""Columns of integers as bytes: seven bits in each, the lowest first, and one that says whether more follow.

They are protobuf's varints (LEB128). Small numbers, as differences of sorted ones are, take a byte each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

LARGEST_BYTES: Final = 9
"""Bytes of a number at most: 63 bits."""
_BITS: Final = 7
_MORE: Final = 1 << _BITS


def encode_varints(numbers: NDArray[np.int64]) -> bytes:
    """Encode n numbers that are not negative."""
    largest = int(numbers.max(initial=0))
    if largest < _MORE:  # as in most columns
        return numbers.astype(np.uint8).tobytes()
    left = numbers[:, None] >> np.arange(0, largest.bit_length(), _BITS)
    follows = left[:, 1:] > 0
    data = left.astype(np.uint8) & np.uint8(_MORE - 1)
    data[:, :-1] |= follows * np.uint8(_MORE)
    is_written = np.ones(data.shape, np.bool_)
    is_written[:, 1:] = follows
    return data[is_written].tobytes()


def decode_varints(data: bytes) -> NDArray[np.int64]:
    """Decode all numbers (n,). Raises ValueError for bytes that `encode_varints` does not make."""
    values = np.frombuffer(data, np.uint8)
    if values.max(initial=0) < _MORE:  # as in most columns
        return values.astype(np.int64)
    last = np.flatnonzero(values < _MORE)
    if not len(last) or last[-1] != len(values) - 1:
        raise ValueError("ends within a number")
    sizes = np.diff(last, prepend=-1)
    if sizes.max(initial=0) > LARGEST_BYTES:
        raise ValueError(f"has a number of more than {LARGEST_BYTES} bytes")
    if (values[last[sizes > 1]] == 0).any():
        raise ValueError("has a number of more bytes than it needs")
    starts, numbers = last + 1 - sizes, np.zeros(len(last), np.int64)
    for place in range(int(sizes.max(initial=0))):
        some = np.flatnonzero(sizes > place)
        numbers[some] |= (values[starts[some] + place] & np.uint8(_MORE - 1)).astype(
            np.int64
        ) << _BITS * place
    return numbers
