"""Columns of integers as bytes: seven bits in each, the lowest first, and one that says whether more follow.

They are protobuf's varints (LEB128). Small numbers, as differences of sorted ones are, take a byte each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import borrowing

LARGEST_BYTES: Final = 9
"""Bytes of a number at most: 63 bits."""
_BITS: Final = 7
_MORE: Final = 1 << _BITS
_TOO_LARGE, _TOO_LONG = -1, -2
"""What `_decode` returns of bytes that `encode_varints` does not make."""


def encode_varints(numbers: NDArray[np.int64]) -> bytes:
    """Encode n numbers, none of them negative."""
    numbers = np.ascontiguousarray(numbers, np.int64)  # the only type that the loop is compiled for
    if len(numbers) and numbers.min() < 0:
        raise ValueError("a number is negative")
    data = np.empty(LARGEST_BYTES * len(numbers), np.uint8)
    return data[: _encode(numbers, data)].tobytes()


def decode_varints(data: bytes) -> NDArray[np.int64]:
    """Decode all numbers (n,). Raises ValueError for bytes that `encode_varints` does not make."""
    values = np.frombuffer(data, np.uint8)
    if len(values) and values[-1] >= _MORE:
        raise ValueError("ends within a number")
    numbers = np.empty(np.count_nonzero(values < _MORE), np.int64)
    outcome = _decode(values, numbers)
    if outcome == _TOO_LARGE:
        raise ValueError(f"has a number of more than {LARGEST_BYTES} bytes")
    if outcome == _TOO_LONG:
        raise ValueError("has a number of more bytes than it needs")
    return numbers


@borrowing
def _encode(numbers: NDArray[np.int64], data: NDArray[np.uint8]) -> int:
    """Write numbers (n,) to `data`, and return how many bytes they take."""
    end = 0
    for number in numbers:
        while number >= _MORE:
            data[end] = number & _MORE - 1 | _MORE
            number >>= _BITS
            end += 1
        data[end] = number
        end += 1
    return end


@borrowing
def _decode(values: NDArray[np.uint8], numbers: NDArray[np.int64]) -> int:
    """Write the numbers (n,) that bytes have, of which the last one ends a number. Returns how many there
    are, or what is wrong."""
    count, number, size = 0, np.int64(0), 0
    for value in values:
        if size == LARGEST_BYTES:
            return _TOO_LARGE
        number |= np.int64(value & np.uint8(_MORE - 1)) << _BITS * size
        size += 1
        if value < _MORE:
            if size > 1 and not value:
                return _TOO_LONG
            numbers[count] = number
            count, number, size = count + 1, np.int64(0), 0
    return count
